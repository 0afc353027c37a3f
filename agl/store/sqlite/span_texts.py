"""What a span is in its row's JSON columns: packed token ids, references to long texts, nothing for the default."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from agl.store.cutting import LONG, has_marks
from agl.store.packed import MARK, pack
from agl.store.sqlite.blobs import stow, stow_texts
from agl.store.sqlite.rows import json_text
from agl.store.sqlite.terms import SCALAR
from agl.types import Span, SpanStatus, SpanStatusCode


class SpanTexts(NamedTuple):
    """The JSON columns of one span. A tuple, for a dataclass costs as much as the JSON of a small span."""

    status: str | None
    attributes: str
    """Empty while there are ``long_keys``."""
    events: str | None
    links: str | None
    resource: str | None
    packed: bytes | None
    places: dict[str, str]
    """What stands for the packed attributes, by key."""
    is_long: bool
    """Whether texts must be stowed before the row is written."""
    long_keys: tuple[str, ...] = ()
    """Of the attributes that are these texts, where all of them are attributes: the usual case, and a quick one."""


def span_texts(span: Span) -> SpanTexts:
    """Return a span's columns with its long texts still in them.

    Raises:
        InvalidRequestError: something of the span is not JSON.
    """
    given = span.attributes
    places, packed = pack(given)
    events = _text(span, "events", _events(span)) if span.events else None
    resource = _text(span, "resource", span.resource) if span.resource else None
    links = _text(span, "links", [link.model_dump() for link in span.links]) if span.links else None
    status = _status_text(span.status)
    is_long = (events is not None and has_marks(events)) or (resource is not None and has_marks(resource))
    long_keys = () if is_long else _long_keys(span, places)
    if long_keys:
        return SpanTexts(status, "", events, links, resource, packed, places, True, long_keys)  # noqa: FBT003
    attributes = _text(span, "attributes", {**given, **places} if places else given)
    is_long = (
        is_long or len(attributes) >= LONG or (MARK in attributes and attributes.count(MARK) > len(places))
    )
    return SpanTexts(status, attributes, events, links, resource, packed, places, is_long)


def stow_long(db: sqlite3.Connection, spans: Sequence[Span], texts: list[SpanTexts]) -> None:
    """Move the long texts of spans to the blob table, and replace their columns."""
    long = [index for index, text in enumerate(texts) if text.is_long]
    if not long:
        return
    times: Counter[str] = Counter()
    for index in long:
        attributes = spans[index].attributes
        times.update(attributes[key] for key in texts[index].long_keys)
    templates = stow_texts(db, times)
    values: list[Any] = []
    for index in long:
        span, text = spans[index], texts[index]
        if text.long_keys:
            own = {key: templates[span.attributes[key]] for key in text.long_keys}
            stored = _text(span, "attributes", {**span.attributes, **text.places, **own})
            texts[index] = text._replace(attributes=stored)
        else:
            values.append({key: value for key, value in span.attributes.items() if key not in text.places})
            values += (_events(span), span.resource)
    stowed = iter(stow(db, values))
    for index in long:
        span, text = spans[index], texts[index]
        if text.long_keys:
            continue
        attributes, events, resource = next(stowed), next(stowed), next(stowed)
        in_order = {
            key: text.places[key] if key in text.places else attributes[key] for key in span.attributes
        }
        what = f"span {span.span_id}"
        texts[index] = text._replace(
            attributes=json_text(in_order, what),
            events=json_text(events, what) if events else None,
            resource=json_text(resource, what) if resource else None,
        )


def _long_keys(span: Span, places: Mapping[str, str]) -> tuple[str, ...]:
    """The attributes that are long texts; none where a list or an object may hold others."""
    long: list[str] = []
    nested: list[object] = []
    for key, value in span.attributes.items():
        if type(value) is str:
            if (len(value) >= LONG or MARK in value) and key not in places:
                long.append(key)
        elif type(value) not in SCALAR:
            nested.append(value)
    if not long or (nested and has_marks(_text(span, "attributes", nested))):
        return ()
    for key in long:
        if not _can_be_written(span.attributes[key]):
            return ()
    return tuple(long)


def _can_be_written(text: str) -> bool:
    """Whether a text is one of Unicode: what is not is refused by its name where all is written together."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@lru_cache(maxsize=64)
def _short_status(code: SpanStatusCode) -> str | None:
    """Most calls end well, and say no more."""
    return None if code == "unset" else SpanStatus(code=code).model_dump_json()


def _status_text(status: SpanStatus) -> str | None:
    return _short_status(status.code) if status.description is None else status.model_dump_json()


def _text(span: Span, field: str, value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError):
        return json_text(value, f"{field} of span {span.span_id} ({span.name})")  # says what is wrong


def _events(span: Span) -> list[dict[str, Any]]:
    return [event.model_dump() for event in span.events]
