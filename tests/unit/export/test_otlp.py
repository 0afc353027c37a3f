"""Spans as OTLP's JSON, by the specification and by the store's own reader."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from recorded_runs import span

from agl.export.otlp import has_otlp_ids, otlp_line
from agl.store.otlp.json_body import read_json
from agl.store.otlp.reading import SpanReading
from agl.types import Span, SpanStatus

SPANS = [
    span(1, 1),
    span(1, 2, end_time_ns=None, status=SpanStatus(), kind="internal"),
    span(2, 3, resource={}, attributes={"otel.scope.name": "lib", "otel.scope.version": "1", "a": -(2**63)}),
    span(2, 4, rollout_id=None, attempt_id=None, sequence_id=None, events=(), links=()),
]


def read(line: bytes) -> list[Span]:
    reading = SpanReading()
    read_json(line, reading)
    assert not reading.rejected
    return reading.spans


def test_every_field_of_every_span_comes_back() -> None:
    back = {(one.trace_id, one.span_id): one for one in read(otlp_line(SPANS))}
    assert back == {(one.trace_id, one.span_id): one for one in SPANS}


def test_ids_are_hex_64_bit_numbers_are_text_and_enums_are_numbers() -> None:
    body = json.loads(otlp_line([SPANS[0]]))["resourceSpans"][0]
    (shown,) = body["scopeSpans"][0]["spans"]
    assert shown["traceId"] == f"{2:032x}"
    assert shown["spanId"] == f"{1:016x}"
    assert shown["kind"] == 3
    assert shown["startTimeUnixNano"] == "1700000000000000001"
    assert shown["status"] == {"code": 2, "message": "ä bad\nend"}
    attributes: dict[str, Any] = {pair["key"]: pair["value"] for pair in shown["attributes"]}
    assert attributes["n"] == {"intValue": "1"}
    assert attributes["x"] == {"doubleValue": 1.0}
    assert attributes["none"] == {}
    assert attributes["agl.rollout_id"] == {"stringValue": "ro-1"}
    assert attributes["agl.span_sequence_id"] == {"intValue": "1"}
    assert body["resource"]["attributes"][1] == {"key": "pid", "value": {"intValue": "7"}}


def test_protobufs_own_reader_takes_it() -> None:
    """Its JSON has bytes in base64 where OTLP has hex; both read the same signs."""
    request = Parse(otlp_line(SPANS), ExportTraceServiceRequest())
    spans = [one for of in request.resource_spans for scope in of.scope_spans for one in scope.spans]
    assert sorted(one.start_time_unix_nano for one in spans) == sorted(one.start_time_ns for one in SPANS)
    scopes = [scope.scope.name for of in request.resource_spans for scope in of.scope_spans]
    assert sorted(scopes) == ["", "lib"]


def test_ids_that_otlp_has_no_form_for_are_told() -> None:
    assert all(map(has_otlp_ids, SPANS))
    for change in (
        {"span_id": "abc"},
        {"trace_id": "0" * 32},
        {"parent_id": "X" * 16},
        {"trace_id": "t" * 32},
    ):
        assert not has_otlp_ids(SPANS[0].model_copy(update=change))


def test_a_whole_number_beyond_64_bits_becomes_text() -> None:
    (back,) = read(otlp_line([span(1, 1, attributes={"big": 2**64})]))
    assert back.attributes == {"big": str(2**64)}
