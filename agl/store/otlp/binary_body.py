"""The binary encoding: an ExportTraceServiceRequest in protobuf, read span by span so that memory follows the body."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import replace
from math import inf, isfinite

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from agl.store.otlp.protobuf_fields import FieldWalk
from agl.store.otlp.reading import (
    MalformedRequestError,
    Source,
    SpanReading,
    event_of,
    extended,
    scope_attributes,
    status_of,
)
from agl.types import Json, SpanEvent, SpanLink

_LARGE_BYTES = 256 * 1024
"""Above, a message's values are counted before it is built, for a value of two bytes takes sixty once it is built."""


def read_binary(body: bytes, reading: SpanReading) -> None:
    """Read a request's spans.

    Raises:
        MalformedRequestError: the body is no ExportTraceServiceRequest.
        LargeRequestError: it holds too much.
    """
    walk = FieldWalk()
    try:
        for resource_spans in walk.embedded(memoryview(body), 1):
            reading.expect(1)
            _read_resource_spans(resource_spans, walk, reading)
    except (DecodeError, MalformedRequestError) as error:
        raise MalformedRequestError(f"the body is no ExportTraceServiceRequest: {error}") from error


def _read_resource_spans(data: memoryview, walk: FieldWalk, reading: SpanReading) -> None:
    resource = Resource()
    for part in walk.embedded(data, 1):
        _check_size(part, "resource", walk, reading)
        resource.MergeFromString(bytes(part))
    reading.count_values(len(resource.attributes))
    source = reading.source(
        extended(_attributes(resource.attributes), dropped=resource.dropped_attributes_count)
    )
    for scope_spans in walk.embedded(data, 2):
        reading.expect(1)
        scope = InstrumentationScope()
        for part in walk.embedded(scope_spans, 1):
            _check_size(part, "scope", walk, reading)
            scope.MergeFromString(bytes(part))
        reading.count_values(len(scope.attributes))
        attributes = extended(_attributes(scope.attributes), dropped=scope.dropped_attributes_count)
        scoped = replace(source, scope=scope_attributes(scope.name, scope.version, attributes))
        for span in walk.embedded(scope_spans, 2):
            reading.expect(1)
            _check_size(span, "span", walk, reading)
            _read_span(trace_pb2.Span.FromString(bytes(span)), scoped, reading)


def _check_size(data: memoryview, what: str, walk: FieldWalk, reading: SpanReading) -> None:
    if len(data) > _LARGE_BYTES:
        reading.require_values(walk.count_values(data, what))


def _read_span(span: trace_pb2.Span, source: Source, reading: SpanReading) -> None:
    reading.count_values(len(span.attributes) + len(span.events) + len(span.links))
    reading.add(
        source,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        kind=span.kind,
        status=status_of(span.status.code, span.status.message),
        attributes=extended(
            _attributes(span.attributes),
            dropped=span.dropped_attributes_count,
            dropped_events=span.dropped_events_count,
            dropped_links=span.dropped_links_count,
            trace_state=span.trace_state,
        ),
        events=tuple([_event(event) for event in span.events]),
        links=tuple([_link(link) for link in span.links]),
        start_time_ns=span.start_time_unix_nano,
        end_time_ns=span.end_time_unix_nano,
    )


def _event(event: trace_pb2.Span.Event) -> SpanEvent:
    attributes = extended(_attributes(event.attributes), dropped=event.dropped_attributes_count)
    return event_of(event.name, event.time_unix_nano, attributes)


def _link(link: trace_pb2.Span.Link) -> SpanLink:
    return SpanLink(
        trace_id=link.trace_id.hex(),
        span_id=link.span_id.hex(),
        attributes=extended(
            _attributes(link.attributes), dropped=link.dropped_attributes_count, trace_state=link.trace_state
        ),
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for pair in pairs:
        value = pair.value
        kind = value.WhichOneof("value")
        # The two kinds of nearly all attributes, without a call.
        if kind == "string_value":
            found[pair.key] = value.string_value
        elif kind == "int_value":
            found[pair.key] = value.int_value
        else:
            found[pair.key] = _value(value)
    return found


def _value(value: AnyValue) -> Json:
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "int_value":
            return value.int_value
        case "bool_value":
            return value.bool_value
        case "double_value":
            return _double(value.double_value)
        case "bytes_value":
            return b64encode(value.bytes_value).decode("ascii")
        case "array_value":
            return [_value(item) for item in value.array_value.values]
        case "kvlist_value":
            return _attributes(value.kvlist_value.values)
        case _:
            return None


def _double(number: float) -> float | str:
    """Return a double as JSON: itself, or the text that protobuf's JSON gives to what JSON lacks."""
    if isfinite(number):
        return number
    return "Infinity" if number == inf else "-Infinity" if number == -inf else "NaN"
