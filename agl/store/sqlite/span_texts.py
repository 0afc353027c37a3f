"""What a span is in its row's JSON columns: packed token ids, references to long texts, nothing for the default."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agl.store.packed import MARK, pack
from agl.store.sqlite.blobs import LONG, stow
from agl.store.sqlite.rows import json_text
from agl.types import Span


@dataclass(slots=True, kw_only=True)
class SpanTexts:
    """The JSON columns of one span."""

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
    what = f"span {span.span_id} ({span.name})"
    places, packed = pack(span.attributes)
    attributes = json_text({**span.attributes, **places}, f"attributes of {what}")
    events = json_text(_events(span), f"events of {what}") if span.events else None
    resource = json_text(span.resource, f"resource of {what}") if span.resource else None
    is_long = len(attributes) >= LONG or attributes.count(MARK) > len(places)
    for text in (events, resource):
        is_long = is_long or (text is not None and (len(text) >= LONG or MARK in text))
    status = span.status
    return SpanTexts(
        status=None if status.code == "unset" and status.description is None else status.model_dump_json(),
        attributes=attributes,
        events=events,
        links=json_text([link.model_dump() for link in span.links], f"links of {what}")
        if span.links
        else None,
        resource=resource,
        packed=packed,
        places=places,
        is_long=is_long,
    )


def stow_long(db: sqlite3.Connection, spans: Sequence[Span], texts: Sequence[SpanTexts]) -> None:
    """Move the long texts of spans to the blob table. Call it once nothing can refuse the spans any more."""
    long = [(span, text) for span, text in zip(spans, texts, strict=True) if text.is_long]
    if not long:
        return
    values: list[Any] = []
    for span, text in long:
        values.append({key: value for key, value in span.attributes.items() if key not in text.places})
        values += (_events(span), span.resource)
    stowed = stow(db, values)
    for index, (span, text) in enumerate(long):
        attributes, events, resource = stowed[3 * index : 3 * index + 3]
        in_order = {
            key: text.places[key] if key in text.places else attributes[key] for key in span.attributes
        }
        what = f"span {span.span_id}"
        text.attributes = json_text(in_order, what)
        text.events = json_text(events, what) if events else None
        text.resource = json_text(resource, what) if resource else None


def _events(span: Span) -> list[dict[str, Any]]:
    return [event.model_dump() for event in span.events]
