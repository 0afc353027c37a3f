from __future__ import annotations

import math

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from agl.store.otlp.binary_body import read_binary
from agl.store.otlp.reading import LargeRequestError, MalformedRequestError, SpanReading
from agl.types import Json, SpanEvent, SpanLink, SpanStatus

TRACE, SPAN, PARENT = bytes(range(16)), bytes(range(1, 9)), bytes(range(2, 10))


def text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def request(*spans: Span, resource: Resource | None = None) -> bytes:
    scoped = ScopeSpans(spans=spans)
    return ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(resource=resource, scope_spans=[scoped])]
    ).SerializeToString()


def read(body: bytes) -> SpanReading:
    reading = SpanReading()
    read_binary(body, reading)
    return reading


def value_of(value: AnyValue) -> Json:
    span = Span(trace_id=TRACE, span_id=SPAN, attributes=[KeyValue(key="v", value=value)])
    return read(request(span)).spans[0].attributes["v"]


def test_every_field_of_a_span_is_kept() -> None:
    span = Span(
        trace_id=TRACE,
        span_id=SPAN,
        parent_span_id=PARENT,
        trace_state="vendor=1",
        name="chat",
        kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=1_700_000_000_123_456_789,
        end_time_unix_nano=1_700_000_001_000_000_001,
        attributes=[text("model", "m")],
        dropped_attributes_count=1,
        dropped_events_count=2,
        dropped_links_count=3,
        events=[
            Span.Event(
                name="token", time_unix_nano=7, attributes=[text("t", "x")], dropped_attributes_count=4
            )
        ],
        links=[
            Span.Link(
                trace_id=TRACE,
                span_id=PARENT,
                trace_state="k=v",
                attributes=[text("why", "w")],
                dropped_attributes_count=5,
            )
        ],
        status=Status(code=Status.STATUS_CODE_ERROR, message="broke"),
    )
    scope = InstrumentationScope(
        name="lib", version="2.1", attributes=[text("short", "yes")], dropped_attributes_count=6
    )
    resource = Resource(
        attributes=[text("host", "h"), text("agl.rollout_id", "ro")], dropped_attributes_count=7
    )
    body = ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(resource=resource, scope_spans=[ScopeSpans(scope=scope, spans=[span])])]
    ).SerializeToString()
    (kept,) = read(body).spans
    assert kept.model_dump() == {
        "trace_id": "000102030405060708090a0b0c0d0e0f",
        "span_id": "0102030405060708",
        "parent_id": "0203040506070809",
        "name": "chat",
        "kind": "client",
        "status": SpanStatus(code="error", description="broke").model_dump(),
        "attributes": {
            "otel.scope.name": "lib",
            "otel.scope.version": "2.1",
            "otel.scope.short": "yes",
            "otel.scope.otel.dropped_attributes_count": 6,
            "model": "m",
            "otel.dropped_attributes_count": 1,
            "otel.dropped_events_count": 2,
            "otel.dropped_links_count": 3,
            "w3c.tracestate": "vendor=1",
        },
        "events": (
            SpanEvent(
                name="token", time_ns=7, attributes={"t": "x", "otel.dropped_attributes_count": 4}
            ).model_dump(),
        ),
        "links": (
            SpanLink(
                trace_id="000102030405060708090a0b0c0d0e0f",
                span_id="0203040506070809",
                attributes={"why": "w", "otel.dropped_attributes_count": 5, "w3c.tracestate": "k=v"},
            ).model_dump(),
        ),
        "resource": {"host": "h", "otel.dropped_attributes_count": 7},
        "start_time_ns": 1_700_000_000_123_456_789,
        "end_time_ns": 1_700_000_001_000_000_001,
        "rollout_id": "ro",
        "attempt_id": None,
        "sequence_id": None,
    }


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (AnyValue(string_value="é\0"), "é\0"),
        (AnyValue(bool_value=False), False),
        (AnyValue(int_value=-(1 << 63)), -(1 << 63)),
        (AnyValue(int_value=(1 << 63) - 1), (1 << 63) - 1),
        (AnyValue(double_value=0.1), 0.1),
        (AnyValue(double_value=math.nan), "NaN"),
        (AnyValue(double_value=math.inf), "Infinity"),
        (AnyValue(double_value=-math.inf), "-Infinity"),
        (AnyValue(bytes_value=b"\x00\xff\xfe"), "AP/+"),
        (AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1), AnyValue()])), [1, None]),
        (AnyValue(kvlist_value=KeyValueList(values=[text("a", "b")])), {"a": "b"}),
        (AnyValue(), None),
    ],
)
def test_every_kind_of_value_is_kept(value: AnyValue, kept: Json) -> None:
    found = value_of(value)
    assert (type(found), found) == (type(kept), kept)


def test_a_resource_counts_for_its_spans_wherever_it_stands() -> None:
    spans = ResourceSpans(
        scope_spans=[ScopeSpans(spans=[Span(trace_id=TRACE, span_id=SPAN)])]
    ).SerializeToString()
    first = ResourceSpans(resource=Resource(attributes=[text("a", "1")])).SerializeToString()
    second = ResourceSpans(resource=Resource(attributes=[text("b", "2")])).SerializeToString()
    joined = first + spans + second  # protobuf merges what comes twice
    body = b"\x0a" + bytes([len(joined)]) + joined
    assert ExportTraceServiceRequest.FromString(body).resource_spans[0].resource.attributes[1].key == "b"
    assert read(body).spans[0].resource == {"a": "1", "b": "2"}


def test_an_empty_request_has_no_spans() -> None:
    assert read(b"").spans == []
    assert read(request()).spans == []


def test_a_malformed_body_is_refused() -> None:
    good = request(Span(trace_id=TRACE, span_id=SPAN, name="name"))
    assert len(read(good).spans) == 1
    for body in (good[:-1], good.replace(b"name", b"\xff\xfe\xff\xfe"), b"\x0a\x02\xff\xff", b"{}", b"\x00"):
        with pytest.raises(MalformedRequestError, match="the body is no ExportTraceServiceRequest: "):
            read(body)


def test_a_body_cut_anywhere_is_refused() -> None:
    good = request(Span(trace_id=TRACE, span_id=SPAN, name="n", attributes=[text("k", "v")]))
    for length in range(1, len(good)):
        with pytest.raises(MalformedRequestError):
            read(good[:length])


def test_deep_values_are_refused() -> None:
    value = AnyValue(int_value=1).SerializeToString()
    for _ in range(60):
        value = _nested(_nested(value, 1), 5)  # a value of an array of a value
    span = _nested(_nested(value, 2), 9)
    with pytest.raises(MalformedRequestError):
        read(_nested(_nested(_nested(span, 2), 2), 1))


def test_millions_of_empty_values_are_refused_before_they_are_built() -> None:
    empty_attributes = b"\x4a\x00" * 1_000_001
    with pytest.raises(LargeRequestError, match="more than 1,000,000 fields"):
        read(_nested(_nested(_nested(empty_attributes, 2), 2), 1))


def _nested(data: bytes, number: int) -> bytes:
    size, length = len(data), b""
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data
