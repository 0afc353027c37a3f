from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from agl.store.otlp.binary_body import read_binary
from agl.store.otlp.json_body import read_json
from agl.store.otlp.reading import MalformedRequestError, SpanReading
from agl.types import Json

RECORDED = Path(__file__).parents[3] / "data" / "otlp_javascript.json"
"""A request of @opentelemetry/exporter-trace-otlp-http 0.223.1, as it came over the wire."""
TRACE, SPAN = "5B8EFFF798038103D269B633813FC60C", "EEE19B7EC3C1B174"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def pairs_of(some: st.SearchStrategy[AnyValue]) -> st.SearchStrategy[KeyValue]:
    return st.builds(KeyValue, key=texts, value=some)


scalars = st.one_of(
    texts.map(lambda v: AnyValue(string_value=v)),
    st.booleans().map(lambda v: AnyValue(bool_value=v)),
    st.integers(-(1 << 63), (1 << 63) - 1).map(lambda v: AnyValue(int_value=v)),
    st.floats().map(lambda v: AnyValue(double_value=v)),
    st.binary(max_size=8).map(lambda v: AnyValue(bytes_value=v)),
    st.just(AnyValue()),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda v: AnyValue(array_value=ArrayValue(values=v))),
        st.lists(pairs_of(inner), max_size=3).map(lambda v: AnyValue(kvlist_value=KeyValueList(values=v))),
    ),
    max_leaves=6,
)


counts = st.integers(0, (1 << 32) - 1)
times = st.integers(0, (1 << 64) - 1)
ids = st.binary(min_size=8, max_size=8)
spans = st.builds(
    Span,
    trace_id=st.binary(min_size=16, max_size=16),
    span_id=ids,
    parent_span_id=st.one_of(st.just(b""), ids),
    trace_state=texts,
    name=texts,
    kind=st.integers(0, 5),
    start_time_unix_nano=times,
    end_time_unix_nano=times,
    attributes=st.lists(pairs_of(values), max_size=3),
    dropped_attributes_count=counts,
    events=st.lists(
        st.builds(
            Span.Event, name=texts, time_unix_nano=times, attributes=st.lists(pairs_of(values), max_size=2)
        ),
        max_size=2,
    ),
    links=st.lists(
        st.builds(
            Span.Link,
            trace_id=st.binary(min_size=16, max_size=16),
            span_id=ids,
            dropped_attributes_count=counts,
            trace_state=texts,
        ),
        max_size=2,
    ),
    status=st.builds(Status, code=st.integers(0, 2), message=texts),
)


def read(body: bytes | dict[str, Any]) -> SpanReading:
    reading = SpanReading()
    read_json(body if isinstance(body, bytes) else json.dumps(body).encode(), reading)
    return reading


def request(**span: Any) -> dict[str, Any]:
    whole = {"traceId": TRACE, "spanId": SPAN, **span}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [whole]}]}]}


def value_of(value: Any) -> Json:
    return read(request(attributes=[{"key": "v", "value": value}])).spans[0].attributes["v"]


@given(st.lists(spans, max_size=3))
def test_json_and_protobuf_give_the_same_spans(some: list[Span]) -> None:
    whole = ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[ScopeSpans(spans=some)])])
    binary = SpanReading()
    read_binary(whole.SerializeToString(), binary)
    # Protobuf's own JSON, with OTLP's two deviations: ids in hex, enums as numbers.
    as_json = json_format.MessageToDict(whole, use_integers_for_enums=True)
    for resource_spans in as_json.get("resourceSpans", ()):
        for scope_spans in resource_spans.get("scopeSpans", ()):
            for span in scope_spans.get("spans", ()):
                for holder in (span, *span.get("links", ())):
                    for key in ("traceId", "spanId", "parentSpanId"):
                        if key in holder:
                            holder[key] = base64.b64decode(holder[key]).hex()
    text = read(as_json)
    assert text.spans == binary.spans
    assert text.rejected == binary.rejected


def test_a_recorded_request_of_the_javascript_exporter_is_read() -> None:
    reading = read(RECORDED.read_bytes())
    assert not reading.rejected
    chat, plan = reading.spans
    assert (plan.name, plan.kind, plan.parent_id, plan.status.code) == ("plan", "server", None, "ok")
    assert (plan.start_time_ns, plan.end_time_ns) == (1700000000000000005, 1700000003999999999)
    assert (chat.name, chat.kind, chat.parent_id, chat.rollout_id) == (
        "chat gpt",
        "client",
        plan.span_id,
        "ro-js",
    )
    assert (chat.status.code, chat.status.description) == ("error", "too long")
    assert chat.attributes == {
        "otel.scope.name": "node-library",
        "otel.scope.version": "2.1.0",
        "gen_ai.request.model": "gpt",
        "tokens": 42,
        "temperature": 0.5,
        "stream": False,
        "stops": ["a", "b"],
        "big": 9007199254740991,
    }
    assert [(event.name, event.time_ns, event.attributes) for event in chat.events] == [
        ("first token", 1700000001223456789, {"ms": 12})
    ]
    assert [(link.span_id, link.attributes) for link in chat.links] == [(plan.span_id, {"why": "follows"})]
    assert chat.resource == {"service.name": "node-agent"}


def test_hex_ids_of_either_case_are_kept_in_lower_case() -> None:
    (span,) = read(request(parentSpanId=SPAN)).spans
    assert (span.trace_id, span.span_id, span.parent_id) == (TRACE.lower(), SPAN.lower(), SPAN.lower())


def test_unknown_fields_and_snake_case_are_ignored() -> None:
    (span,) = read(request(name="n", start_time_unix_nano="7", color="red", flags=257)).spans
    assert (span.name, span.start_time_ns) == ("n", 0)


def test_null_is_a_field_left_out() -> None:
    (span,) = read(
        request(name=None, kind=None, status=None, attributes=None, events=None, endTimeUnixNano=None)
    ).spans
    assert (span.name, span.kind, span.attributes, span.end_time_ns) == ("", "internal", {}, None)
    for empty in ({}, {"resourceSpans": None}, {"resourceSpans": [{}]}):
        assert read(empty).spans == []


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"intValue": "9223372036854775807"}, 9223372036854775807),
        ({"intValue": -9223372036854775808}, -9223372036854775808),
        ({"intValue": 3.0}, 3),
        ({"doubleValue": "NaN"}, "NaN"),
        ({"doubleValue": "-Infinity"}, "-Infinity"),
        ({"doubleValue": "1.5e3"}, 1500.0),
        ({"doubleValue": 2}, 2.0),
        ({"bytesValue": "AP_-"}, "AP/+"),
        ({"bytesValue": "AA"}, "AA=="),
        ({"arrayValue": {}}, []),
        (
            {"kvlistValue": {"values": [{"key": "a", "value": {"boolValue": True}}, {"key": "b"}]}},
            {"a": True, "b": None},
        ),
        ({"futureValue": 1}, None),
        ({"stringValue": None, "intValue": 1}, 1),
        ({}, None),
        (None, None),
    ],
)
def test_values(value: Any, kept: Json) -> None:
    found = value_of(value)
    assert (type(found), found) == (type(kept), kept)


@pytest.mark.parametrize(
    "value",
    [
        {"stringValue": 1},
        {"boolValue": "true"},
        {"intValue": "0x10"},
        {"intValue": "9223372036854775808"},
        {"intValue": 1.5},
        {"intValue": True},
        {"intValue": "٣"},
        {"doubleValue": "nan"},
        {"doubleValue": "1e999"},
        {"doubleValue": []},
        {"bytesValue": "é"},
        {"bytesValue": "A"},
        {"arrayValue": []},
        {"arrayValue": {"values": [1]}},
        {"kvlistValue": {"values": {}}},
        [],
        "text",
    ],
    ids=str,
)
def test_a_value_of_the_wrong_shape_makes_the_request_malformed(value: Any) -> None:
    with pytest.raises(MalformedRequestError):
        value_of(value)


@pytest.mark.parametrize(
    "span",
    [
        {"name": 1},
        {"kind": "SPAN_KIND_SERVER"},
        {"kind": True},
        {"startTimeUnixNano": -1},
        {"startTimeUnixNano": str(1 << 64)},
        {"startTimeUnixNano": "1 "},
        {"droppedLinksCount": 1 << 32},
        {"traceId": "not hex"},
        {"traceId": 1},
        {"status": []},
        {"events": [None]},
        {"links": {}},
        {"attributes": [[]]},
        {"attributes": [{"key": 1}]},
    ],
    ids=str,
)
def test_a_field_of_the_wrong_shape_makes_the_request_malformed(span: dict[str, Any]) -> None:
    with pytest.raises(MalformedRequestError):
        read(request(**span))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null1",
        b'"text"',
        b'{"a": NaN}',
        b'{"a": "\\ud800"}',
        b'{"a": "\xff"}',
        b"[" * 10_000,
    ],
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        read(body)


def test_values_nest_32_deep_and_no_deeper() -> None:
    value: Any = {"intValue": 1}
    for _ in range(32):
        value = {"arrayValue": {"values": [value]}}
    assert json.dumps(value_of(value)) == "[" * 32 + "1" + "]" * 32
    with pytest.raises(MalformedRequestError, match="deeper than 32"):
        value_of({"kvlistValue": {"values": [{"key": "k", "value": value}]}})


def test_base64_ids_reject_their_span_alone() -> None:
    body = request()
    body["resourceSpans"][0]["scopeSpans"][0]["spans"].append({"traceId": "abcd", "spanId": SPAN})
    reading = read(body)
    assert (len(reading.spans), reading.rejected.total()) == (1, 1)
