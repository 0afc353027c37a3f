from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from agl.store.server.app import create_app
from agl.store.sqlite import SqliteStore
from agl.types import RolloutRequest, SpanQuery
from agl.types import Span as StoredSpan
from agl.types.tokens import scoped_token

PROTOBUF, JSON = "application/x-protobuf", "application/json"
TOKEN = "a-token-of-some-length"
TRACE = "0af7651916cd43dd8448eb211c80319c"


class Exporter:
    """Posts requests to an application with a rollout ``ro`` that is being executed."""

    def __init__(self, store: SqliteStore, client: httpx.AsyncClient, attempt_id: str) -> None:
        self.store = store
        self.attempt_id = attempt_id
        self._client = client

    async def send(self, body: bytes, media_type: str = PROTOBUF, **headers: str) -> httpx.Response:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self._client.post(
            "/v1/traces", content=body, headers={"content-type": media_type} | given
        )

    async def kept(self) -> list[StoredSpan]:
        return list((await self.store.query_spans(SpanQuery(trace_id=TRACE))).items)


@asynccontextmanager
async def exporting(**settings: Any) -> AsyncIterator[Exporter]:
    async with SqliteStore(":memory:") as store:
        held = await store.start_rollout(RolloutRequest(task=0, rollout_id="ro"))
        transport = httpx.ASGITransport(create_app(store, **settings))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield Exporter(store, client, held.attempt.attempt_id)


@pytest.fixture
async def exporter() -> AsyncIterator[Exporter]:
    async with exporting() as opened:
        yield opened


def spans(*numbers: int, **changes: Any) -> bytes:
    some = [
        Span(trace_id=bytes.fromhex(TRACE), span_id=number.to_bytes(8), name="n", **changes)
        for number in numbers
    ]
    scoped = [ScopeSpans(spans=some)]
    return ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=scoped)]).SerializeToString()


def json_spans(*numbers: int, **attributes: str) -> bytes:
    pairs = [
        {"key": key.replace("__", "."), "value": {"stringValue": value}} for key, value in attributes.items()
    ]
    some = [{"traceId": TRACE, "spanId": f"{number:016x}", "attributes": pairs} for number in numbers]
    return orjson.dumps({"resourceSpans": [{"scopeSpans": [{"spans": some}]}]})


async def test_full_success_is_an_empty_message_in_the_requests_encoding(exporter: Exporter) -> None:
    for answer, media_type, empty in (
        (await exporter.send(spans(1)), PROTOBUF, b""),
        (await exporter.send(json_spans(2), JSON), JSON, b"{}"),
        (await exporter.send(b""), PROTOBUF, b""),
    ):
        assert (answer.status_code, answer.content) == (200, empty)
        assert answer.headers["content-type"] == media_type
    assert [span.span_id for span in await exporter.kept()] == ["0000000000000001", "0000000000000002"]


async def test_gzip_is_unpacked(exporter: Exporter) -> None:
    answer = await exporter.send(gzip.compress(spans(1, 2)), content_encoding="gzip")
    assert answer.status_code == 200
    assert len(await exporter.kept()) == 2


async def test_a_repeat_is_stored_once(exporter: Exporter) -> None:
    for _ in range(2):
        answer = await exporter.send(spans(1, 2), x_agl_rollout_id="ro", x_agl_attempt_id=exporter.attempt_id)
        assert (answer.status_code, answer.content) == (200, b"")
    assert [span.sequence_id for span in await exporter.kept()] == [1, 2]


async def test_headers_name_the_attempt(exporter: Exporter) -> None:
    await exporter.send(spans(1), x_agl_rollout_id="ro", x_agl_attempt_id=exporter.attempt_id)
    (span,) = await exporter.kept()
    assert (span.rollout_id, span.attempt_id, span.sequence_id) == ("ro", exporter.attempt_id, 1)


async def test_spans_of_unknown_rollouts_are_a_partial_success(exporter: Exporter) -> None:
    answer = await exporter.send(json_spans(1, 2, agl__rollout_id="none"), JSON)
    assert answer.status_code == 200
    assert answer.json() == {
        "partialSuccess": {"rejectedSpans": "2", "errorMessage": "2 spans: no rollout has the id 'none'"}
    }
    answer = await exporter.send(spans(3), x_agl_rollout_id="none")
    assert ExportTraceServiceResponse.FromString(answer.content).partial_success.rejected_spans == 1
    assert await exporter.kept() == []


async def test_a_sequence_id_is_honoured(exporter: Exporter) -> None:
    body = json_spans(1, agl__span_sequence_id="5")
    await exporter.send(body, JSON, x_agl_rollout_id="ro", x_agl_attempt_id=exporter.attempt_id)
    assert [span.sequence_id for span in await exporter.kept()] == [5]


async def test_a_scoped_token_delivers_to_its_attempt_and_no_other() -> None:
    async with exporting(token=TOKEN) as exporter:
        token = f"Bearer {scoped_token(TOKEN, 'ro', exporter.attempt_id)}"
        assert (await exporter.send(spans(1), authorization=token)).content == b""
        answer = await exporter.send(json_spans(2, agl__rollout_id="other"), JSON, authorization=token)
        assert answer.json()["partialSuccess"]["errorMessage"] == (
            "1 span: the token is for another rollout than 'other'"
        )
        (span,) = await exporter.kept()
        assert (span.rollout_id, span.attempt_id) == ("ro", exporter.attempt_id)


async def test_without_its_token_an_exporter_is_told_so_in_its_encoding() -> None:
    async with exporting(token=TOKEN) as exporter:
        answer = await exporter.send(spans(1))
        assert (answer.status_code, answer.headers["content-type"]) == (401, PROTOBUF)
        assert "Authorization: Bearer" in Status.FromString(answer.content).message
        assert (await exporter.send(spans(1), authorization=f"Bearer {TOKEN}")).status_code == 200


@pytest.mark.parametrize("body", [b"\xff", spans(1)[:-1], b"{}", b"\x0a\x02\x12\x09"], ids=bytes.hex)
async def test_malformed_protobuf_is_a_bad_request(exporter: Exporter, body: bytes) -> None:
    answer = await exporter.send(body)
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROTOBUF)
    assert Status.FromString(answer.content).message.startswith("the body is no ExportTraceServiceRequest")


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"resourceSpans": 1}', b'{"resourceSpans": [{"resource": []}]}']
)
async def test_malformed_json_is_a_bad_request(exporter: Exporter, body: bytes) -> None:
    answer = await exporter.send(body, JSON)
    assert (answer.status_code, answer.headers["content-type"]) == (400, JSON)
    assert answer.json()["code"] == 3


async def test_an_id_that_is_too_long_in_a_header_is_a_bad_request(exporter: Exporter) -> None:
    answer = await exporter.send(spans(1), x_agl_rollout_id="x" * 201)
    assert answer.status_code == 400


async def test_another_media_type_or_packing_is_not_read(exporter: Exporter) -> None:
    answer = await exporter.send(spans(1), "text/plain")
    assert (answer.status_code, answer.headers["content-type"]) == (415, JSON)
    assert "application/x-protobuf or application/json" in answer.json()["message"]
    answer = await exporter.send(spans(1), content_encoding="br")
    assert (answer.status_code, answer.headers["content-type"]) == (415, PROTOBUF)


async def test_a_request_over_the_limits_is_too_large() -> None:
    async with exporting(max_body_bytes=1000) as exporter:
        assert (await exporter.send(b"x" * 1001)).status_code == 413
        assert (
            await exporter.send(gzip.compress(b"x" * 100_000), content_encoding="gzip")
        ).status_code == 413
    async with exporting() as exporter:
        answer = await exporter.send(json_spans(*range(1, 100_002)), JSON)
        assert answer.status_code == 413
        assert "more than 100,000 spans" in answer.json()["message"]
        assert await exporter.kept() == []


async def test_a_store_that_is_away_is_asked_again_later(exporter: Exporter) -> None:
    await exporter.store.close()
    answer = await exporter.send(spans(1))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert Status.FromString(answer.content).code == 14


async def test_a_server_that_only_reads_takes_no_spans() -> None:
    async with exporting(read_only=True) as exporter:
        answer = await exporter.send(spans(1))
        assert (answer.status_code, Status.FromString(answer.content).code) == (403, 7)
