from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncGenerator, MutableMapping
from typing import Any

import orjson
import pytest

from agl.store.server.answers import compressed, encoded, json_bytes, refusal, send_answer, send_chunks
from agl.store.server.operation import Answer
from agl.store.server.refusal import ClientGoneError
from agl.store.wire import ClaimedRollout
from agl.types import (
    LLM,
    Attempt,
    ErrorInfo,
    MetricPoint,
    NamedResources,
    Page,
    Record,
    Rollout,
    RolloutConfig,
    Run,
    Span,
    SpanEvent,
    SpanLink,
    SpanStatus,
    Worker,
)

ATTEMPT = Attempt(
    attempt_id="at",
    rollout_id="ro",
    sequence_id=1,
    started_at=1.5,
    last_heartbeat_at=2.0,
    error=ErrorInfo(cause="timeout", message="é\n"),
)
ROLLOUT = Rollout(
    rollout_id="ro",
    task={"a": [1, None, 2.5, "é\u0001"], "b": {"c": True}},
    config=RolloutConfig(timeout_seconds=3, max_attempts=2),
    metadata={"k": []},
    reward_dimensions={"x": 0.25},
    created_at=1e9,
)
SPAN = Span(
    span_id="ab",
    trace_id="cd",
    name="n",
    status=SpanStatus(code="error", description="d"),
    attributes={"x": 2**53 + 1},
    events=(SpanEvent(name="e", time_ns=10**18, attributes={"a": [1]}),),
    links=(SpanLink(trace_id="t", span_id="s"),),
    start_time_ns=1,
)
RECORDS: list[Record] = [
    ROLLOUT,
    ATTEMPT,
    SPAN,
    ClaimedRollout(**dict(ROLLOUT), attempt=ATTEMPT),
    NamedResources(
        resources_id="rs",
        version=1,
        resources={"llm": LLM(base_url="u", model="m"), "any": [1]},
        created_at=1,
    ),
    Worker(worker_id="w", attempts=("a", "b"), registered_at=1, last_heartbeat_at=2),
    Run(run_id="r", name="n", created_at=1, settings={"a": 1}),
    MetricPoint(run_id="r", name="m", step=1, value=0.1, time=1),
]


class Reader:
    """A client that reads what is sent, and leaves after some pieces."""

    def __init__(self, leaves_after: int | None = None) -> None:
        self.sent: list[MutableMapping[str, Any]] = []
        self._leaves_after = leaves_after
        self._left = asyncio.Event()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(message)
        if len(self.sent) == self._leaves_after:
            self._left.set()
        await asyncio.sleep(0)

    async def receive(self) -> MutableMapping[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_encoded_as_pydantic_does(record: Record) -> None:
    assert orjson.loads(json_bytes(record)) == orjson.loads(record.model_dump_json())
    assert type(record).model_validate_json(json_bytes(record)) == record


@pytest.mark.parametrize("length", [0, 1, 64, 65, 1000])
async def test_lists_and_pages_are_encoded_whole(length: int) -> None:
    items = [{"number": number} for number in range(length)]
    assert orjson.loads(await encoded(items)) == items
    page = Page[Any](items=items, next_cursor='c"')
    assert orjson.loads(await encoded(page)) == {"items": items, "next_cursor": 'c"'}


async def test_a_long_page_is_encoded_in_turns_with_others() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    body = await encoded(Page[Any](items=[{"text": "é" * 100_000} for _ in range(200)]))
    task.cancel()

    assert len(orjson.loads(body)["items"]) == 200
    assert turns > 1


def test_what_is_no_json_is_an_error() -> None:
    with pytest.raises(TypeError, match="set"):
        json_bytes({"x": {1}})


@pytest.mark.parametrize(
    ("code", "status", "headers"),
    [
        ("unauthorized", 401, {b"www-authenticate": b"Bearer"}),
        ("too_many_requests", 429, {b"retry-after": b"1"}),
        ("unavailable", 503, {b"retry-after": b"1"}),
        ("not_found", 404, {}),
    ],
)
def test_a_refusal_is_an_error_body_in_one_line(code: str, status: int, headers: dict[bytes, bytes]) -> None:
    answer = refusal(code, "two\nlines \udc00")

    assert (answer.status, dict(answer.headers)) == (status, headers)
    assert orjson.loads(answer.body) == {"error": {"code": code, "message": "two lines ?"}}


def test_a_refusal_may_end_the_connection() -> None:
    assert (b"connection", b"close") in refusal("too_large", "x", closes=True).headers


@pytest.mark.parametrize("accepts", [b"gzip", b"br, gzip;q=0.5", b"deflate, gzip, br", b"*"])
async def test_a_large_answer_is_compressed_for_who_reads_that(accepts: bytes) -> None:
    for size in (20_000, 500_000):
        answer = await compressed(Answer(body=b"x" * size), {b"accept-encoding": accepts})
        assert dict(answer.headers)[b"content-encoding"] == b"gzip"
        assert gzip.decompress(answer.body) == b"x" * size


@pytest.mark.parametrize("accepts", [None, b"identity", b"gzip;q=0", b"gzip; q=0.0, br", b"br", b"xgzip"])
async def test_others_get_it_as_it_is(accepts: bytes | None) -> None:
    answer = Answer(body=b"x" * 20_000)
    assert await compressed(answer, {} if accepts is None else {b"accept-encoding": accepts}) is answer


async def test_a_small_answer_is_not_compressed() -> None:
    answer = Answer(body=b"x" * 1000)
    assert await compressed(answer, {b"accept-encoding": b"gzip"}) is answer


@pytest.mark.parametrize("size", [0, 1, 262_144, 262_145, 1_000_000])
async def test_an_answer_arrives_whole(size: int) -> None:
    reader = Reader()
    await send_answer(reader.send, Answer(body=b"x" * size, status=200))

    start, *rest = reader.sent
    assert dict(start["headers"]) == {b"content-type": b"application/json", b"content-length": b"%d" % size}
    assert len(reader.body) == size
    assert [message.get("more_body", False) for message in rest] == [True] * (len(rest) - 1) + [False]


async def test_chunks_are_sent_as_they_come_and_ended() -> None:
    ended = False

    async def chunks() -> AsyncGenerator[bytes]:
        nonlocal ended
        try:
            yield b"a"
            yield b"b"
        finally:
            ended = True

    reader = Reader()
    await send_chunks(reader.send, reader.receive, Answer(chunks=chunks(), length=2))

    assert reader.body == b"ab"
    assert reader.sent[-1].get("more_body", False) is False
    assert ended


async def test_what_makes_the_chunks_ends_with_the_client() -> None:
    ended = False

    async def chunks() -> AsyncGenerator[bytes]:
        nonlocal ended
        try:
            while True:
                yield b"x"
        finally:
            ended = True

    reader = Reader(leaves_after=5)
    with pytest.raises(ClientGoneError):
        await send_chunks(reader.send, reader.receive, Answer(chunks=chunks()))
    assert ended
