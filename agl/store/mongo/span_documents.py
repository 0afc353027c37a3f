"""Span documents and records. Attributes, events and links are JSON text: their keys may hold dots and dollars.

``tokens`` are hashes of the attributes, one each, in a multikey index: a filter on attributes looks its tokens up.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import orjson

from agl.store.cutting import LONG, has_marks
from agl.store.mongo.documents import Document, json_text, present
from agl.store.mongo.large import Pieces, filled, stowed
from agl.store.packed import MARK, pack, unpack
from agl.types import Span, SpanEvent, SpanLink, SpanStatus

NO_ATTEMPT = 0
"""The attempt's number in a span of no attempt."""


def span_key(trace_id: str, span_id: str) -> str:
    """Return a span's ``_id``: one text for each pair of ids, whatever characters they have."""
    return f"{len(trace_id)}:{trace_id}{span_id}"


def constant_part(span: Span, pieces: Pieces) -> Document:
    """Return what of a span's document does not depend on its owner; long texts are added to ``pieces``."""
    what = f"span {span.span_id} ({span.name})"
    plain_status = span.status.code == "unset" and span.status.description is None
    places, packed = pack(span.attributes)
    attributes = json_text({**span.attributes, **places}, f"attributes of {what}")
    mine: Pieces = {}
    if len(attributes) >= LONG or attributes.count(MARK) > len(places):
        short = {
            key: places[key] if key in places else stowed(value, mine)
            for key, value in span.attributes.items()
        }
        attributes = json_text(short, f"attributes of {what}")
    events = [one.model_dump() for one in span.events]
    links = [one.model_dump() for one in span.links]
    document = {
        "_id": span_key(span.trace_id, span.span_id),
        "trace_id": span.trace_id,
        "parent_id": span.parent_id,
        "name": span.name,
        "kind": span.kind,
        "status": None if plain_status else span.status.model_dump_json(),
        "attributes": attributes,
        "events": _short_text(events, mine, f"events of {what}") if events else None,
        "links": json_text(links, f"links of {what}") if links else None,
        "resource": _short_text(span.resource, mine, f"resource of {what}") if span.resource else None,
        "start_time_ns": span.start_time_ns,
        "end_time_ns": span.end_time_ns,
        "packed": packed,
        "blobs": list(mine) or None,
        "tokens": tokens(span.attributes) or None,
    }
    pieces |= mine
    return present(document)


def span_of(document: Document, contents: Mapping[str, str]) -> Span:
    """Return the span of a document; ``contents`` has the pieces that it names."""
    trace_id = document["trace_id"]
    status, links = document.get("status"), document.get("links")
    number = document["number"]
    attributes = orjson.loads(document["attributes"])
    events = orjson.loads(document.get("events", "[]"))
    resource = orjson.loads(document.get("resource", "{}"))
    if "packed" in document:
        unpack(attributes, document["packed"])
    if "blobs" in document:
        attributes, events, resource = (filled(one, contents) for one in (attributes, events, resource))
    return Span(
        trace_id=trace_id,
        span_id=document["_id"][len(span_key(trace_id, "")) :],
        parent_id=document.get("parent_id"),
        name=document["name"],
        kind=document["kind"],
        status=SpanStatus() if status is None else SpanStatus.model_validate_json(status),
        attributes=attributes,
        events=tuple(SpanEvent(**one) for one in events),
        links=() if links is None else tuple(SpanLink(**one) for one in orjson.loads(links)),
        resource=resource,
        start_time_ns=document["start_time_ns"],
        end_time_ns=document.get("end_time_ns"),
        rollout_id=document.get("rollout_id"),
        attempt_id=document.get("attempt_id"),
        sequence_id=None if number == NO_ATTEMPT else document["sequence_id"],
    )


def _short_text(value: Any, pieces: Pieces, what: str) -> str:
    """Return JSON text without its long texts, which are added to ``pieces``."""
    text = json_text(value, what)
    return json_text(stowed(value, pieces), what) if has_marks(text) else text


def tokens(attributes: Mapping[str, Any]) -> list[int]:
    """Return one 64-bit token an attribute: equal for equal JSON values (1 is 1.0, true is not 1), else different."""
    return [token(name, value) for name, value in attributes.items()]


def token(name: str, value: object) -> int:
    """Return the token of one attribute."""
    text = json.dumps([name, _canonical(value)], sort_keys=True, separators=(",", ":"))
    return int.from_bytes(hashlib.blake2b(text.encode("ascii"), digest_size=8).digest(), signed=True)


def _canonical(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        return [_canonical(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {str(name): _canonical(one) for name, one in value.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return value
