"""Spans as OTLP's JSON: one ExportTraceServiceRequest a line, as collectors read and write files.

Ids are hex, 64-bit integers text, enums numbers. Which rollout, attempt and place a span has is in its attributes
``agl.rollout_id``, ``agl.attempt_id`` and ``agl.span_sequence_id``, where the store's own OTLP endpoint looks for them.

Sources: https://opentelemetry.io/docs/specs/otlp/ (1.10, JSON Protobuf Encoding) and
https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import orjson

from agl.types import Json, Span
from agl.types import attributes as key

_KINDS: Mapping[str, int] = MappingProxyType(
    {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
)
_CODES: Mapping[str, int] = MappingProxyType({"unset": 0, "ok": 1, "error": 2})
_SCOPE_NAME, _SCOPE_VERSION = "otel.scope.name", "otel.scope.version"
_INT64 = 1 << 63
_TRACE_ID, _SPAN_ID = re.compile("[0-9a-f]{32}"), re.compile("[0-9a-f]{16}")


def has_otlp_ids(span: Span) -> bool:
    """Whether OTLP has a form for all ids of the span: hex of 16 or 8 bytes, not all zero."""
    pairs = [(span.trace_id, span.span_id), *((link.trace_id, link.span_id) for link in span.links)]
    parents = [] if span.parent_id is None else [span.parent_id]
    return all(
        _TRACE_ID.fullmatch(trace_id)
        and _SPAN_ID.fullmatch(span_id)
        and int(trace_id, 16)
        and int(span_id, 16)
        for trace_id, span_id in pairs
    ) and all(_SPAN_ID.fullmatch(parent) for parent in parents)


def otlp_line(spans: Iterable[Span]) -> bytes:
    """Return the spans as one request, grouped by resource and scope, with the line break."""
    groups: dict[bytes, tuple[Span, dict[tuple[str, str], list[dict[str, Any]]]]] = {}
    for span in spans:
        resource = orjson.dumps(span.resource, option=orjson.OPT_SORT_KEYS)
        _, scopes = groups.setdefault(resource, (span, {}))
        scopes.setdefault(_scope(span), []).append(_span(span))
    body = [
        {
            "resource": {"attributes": _pairs(first.resource)},
            "scopeSpans": [
                {"scope": {"name": name, "version": version}, "spans": of_scope}
                for (name, version), of_scope in scopes.items()
            ],
        }
        for first, scopes in groups.values()
    ]
    return orjson.dumps({"resourceSpans": body}) + b"\n"


def _scope(span: Span) -> tuple[str, str]:
    name, version = (span.attributes.get(one) for one in (_SCOPE_NAME, _SCOPE_VERSION))
    return name if isinstance(name, str) else "", version if isinstance(version, str) else ""


def _span(span: Span) -> dict[str, Any]:
    own = {
        name: value
        for name, value in span.attributes.items()
        if name not in (_SCOPE_NAME, _SCOPE_VERSION) or not isinstance(value, str)
    }
    owner = {
        key.ROLLOUT_ID: span.rollout_id,
        key.ATTEMPT_ID: span.attempt_id,
        key.SPAN_SEQUENCE_ID: span.sequence_id,
    }
    own |= {name: value for name, value in owner.items() if value is not None}
    message = {} if span.status.description is None else {"message": span.status.description}
    return {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        **({} if span.parent_id is None else {"parentSpanId": span.parent_id}),
        "name": span.name,
        "kind": _KINDS[span.kind],
        "startTimeUnixNano": str(span.start_time_ns),
        **({} if span.end_time_ns is None else {"endTimeUnixNano": str(span.end_time_ns)}),
        "attributes": _pairs(own),
        "events": [
            {"timeUnixNano": str(event.time_ns), "name": event.name, "attributes": _pairs(event.attributes)}
            for event in span.events
        ],
        "links": [
            {"traceId": link.trace_id, "spanId": link.span_id, "attributes": _pairs(link.attributes)}
            for link in span.links
        ],
        "status": {"code": _CODES[span.status.code], **message},
    }


def _pairs(attributes: Mapping[str, Json]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: Json) -> dict[str, Any]:
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)} if -_INT64 <= value < _INT64 else {"stringValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": _pairs(cast("Mapping[str, Json]", value))}}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_value(one) for one in cast("Sequence[Json]", value)]}}
    return {"stringValue": str(value)}
