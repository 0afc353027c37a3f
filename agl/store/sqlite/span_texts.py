"""What a span is in its row's JSON columns: packed token ids, references to long texts, nothing for the default."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from agl.store.cutting import LONG, has_marks
from agl.store.packed import MARK, pack
from agl.store.sqlite.blobs import stow
from agl.store.sqlite.rows import json_text
from agl.types import Span


class SpanTexts(NamedTuple):
    """The JSON columns of one span. A tuple, for a dataclass costs as much as the JSON of a small span."""

    status: str | None
    attributes: str
    events: str | None
    links: str | None
    resource: str | None
    packed: bytes | None
    places: dict[str, str]
    """What stands for the packed attributes, by key."""
    is_long: bool
    """Whether texts must be stowed before the row is written."""


def span_texts(span: Span) -> SpanTexts:
    """Return a span's columns with its long texts still in them.

    Raises:
        InvalidRequestError: something of the span is not JSON.
    """
    places, packed = pack(span.attributes)
    given = {**span.attributes, **places} if places else span.attributes
    attributes = _text(span, "attributes", given)
    events = _text(span, "events", _events(span)) if span.events else None
    resource = _text(span, "resource", span.resource) if span.resource else None
    links = _text(span, "links", [link.model_dump() for link in span.links]) if span.links else None
    is_long = (
        len(attributes) >= LONG
        or (MARK in attributes and attributes.count(MARK) > len(places))
        or (events is not None and has_marks(events))
        or (resource is not None and has_marks(resource))
    )
    default = span.status.code == "unset" and span.status.description is None
    status = None if default else span.status.model_dump_json()
    return SpanTexts(status, attributes, events, links, resource, packed, places, is_long)


def stow_long(db: sqlite3.Connection, spans: Sequence[Span], texts: list[SpanTexts]) -> None:
    """Move the long texts of spans to the blob table, and replace their columns."""
    long = [index for index, text in enumerate(texts) if text.is_long]
    if not long:
        return
    values: list[Any] = []
    for index in long:
        span, text = spans[index], texts[index]
        values.append({key: value for key, value in span.attributes.items() if key not in text.places})
        values += (_events(span), span.resource)
    stowed = stow(db, values)
    for number, index in enumerate(long):
        span, text = spans[index], texts[index]
        attributes, events, resource = stowed[3 * number : 3 * number + 3]
        in_order = {
            key: text.places[key] if key in text.places else attributes[key] for key in span.attributes
        }
        what = f"span {span.span_id}"
        texts[index] = text._replace(
            attributes=json_text(in_order, what),
            events=json_text(events, what) if events else None,
            resource=json_text(resource, what) if resource else None,
        )


def _text(span: Span, field: str, value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError):
        return json_text(value, f"{field} of span {span.span_id} ({span.name})")  # says what is wrong


def _events(span: Span) -> list[dict[str, Any]]:
    return [event.model_dump() for event in span.events]
