from __future__ import annotations

from collections import Counter

import orjson
import pytest
from google.protobuf import json_format
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from agl.store.otlp.answers import JSON, PROTOBUF, failure, media_type, rejection_message, success


def answer_from(encoding: str, body: bytes) -> ExportTraceServiceResponse:
    if encoding == PROTOBUF:
        return ExportTraceServiceResponse.FromString(body)
    return json_format.Parse(body, ExportTraceServiceResponse())


def status_from(encoding: str, body: bytes) -> Status:
    return Status.FromString(body) if encoding == PROTOBUF else json_format.Parse(body, Status())


@pytest.mark.parametrize("encoding", [PROTOBUF, JSON])
def test_full_success_leaves_partial_success_unset(encoding: str) -> None:
    assert not answer_from(encoding, success(encoding, Counter())).HasField("partial_success")


@pytest.mark.parametrize("encoding", [PROTOBUF, JSON])
def test_partial_success_counts_the_rejected_spans_and_says_why(encoding: str) -> None:
    answer = answer_from(
        encoding, success(encoding, Counter({"no rollout has the id 'é'": 300, "too late": 1}))
    )
    assert answer.partial_success.rejected_spans == 301
    assert answer.partial_success.error_message == "300 spans: no rollout has the id 'é'; 1 span: too late"


def test_the_count_is_text_in_json_as_for_all_64_bit_numbers() -> None:
    assert orjson.loads(success(JSON, Counter({"x": 2})))["partialSuccess"]["rejectedSpans"] == "2"


@pytest.mark.parametrize("encoding", [PROTOBUF, JSON])
def test_a_failure_is_a_status(encoding: str) -> None:
    status = status_from(encoding, failure(encoding, 503, "wait " * 100))
    assert (status.code, status.message, len(status.details)) == (14, "wait " * 100, 0)


@pytest.mark.parametrize("encoding", [PROTOBUF, JSON])
def test_malformed_data_is_described_by_a_bad_request(encoding: str) -> None:
    status = status_from(encoding, failure(encoding, 400, "no JSON"))
    details = BadRequest()
    assert status.details[0].Unpack(details)
    assert (status.code, details.field_violations[0].field) == (3, "body")
    assert details.field_violations[0].description == "no JSON"


def test_a_status_without_a_code_of_its_own_is_internal() -> None:
    assert status_from(PROTOBUF, failure(PROTOBUF, 500, "failed")).code == 13


def test_long_and_many_reasons_are_cut() -> None:
    message = rejection_message(Counter({f"{number:02} {'x' * 1000}": 1 for number in range(13)}))
    assert message.count("1 span: ") == 10
    assert message.endswith("; and 3 more reasons")
    assert len(message) < 3200


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ("application/json", JSON),
        ("Application/JSON; charset=utf-8", JSON),
        ("application/x-protobuf", PROTOBUF),
        ("text/plain", None),
        ("", None),
    ],
)
def test_the_encoding_is_named_by_the_content_type(given: str, known: str | None) -> None:
    assert media_type(given) == known
