"""Spans on their way: group commit."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import orjson
import pytest
from scripted_store import until

from agl.errors import InvalidRequestError, NotFoundError, StoreError, StoreUnavailableError
from agl.store import wire
from agl.store.client.outbox import MAX_REQUESTS, Outbox
from agl.types import Span


def span(name: str, **fields: Any) -> Span:
    return Span(span_id=name, trace_id="t", name=name, start_time_ns=1, **fields)


class Post:
    """Takes requests and answers them when told to; refuses those with a span named ``bad``."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.down: StoreError | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self.number = 0

    async def __call__(self, body: bytes) -> bytes:
        sent = [fields["name"] for fields in orjson.loads(body)]
        self.sent.append(sent)
        await self.gate.wait()
        if self.down is not None:
            raise self.down
        if "bad" in sent:
            raise NotFoundError("no attempt has the id 'none'")
        first, self.number = self.number + 1, self.number + len(sent)
        return orjson.dumps({"sequence_ids": list(range(first, self.number + 1))})

    def spawn(self, work: Coroutine[Any, Any, None]) -> object:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        return task


@pytest.fixture
async def post() -> Post:
    return Post()


@pytest.fixture
async def outbox(post: Post) -> Outbox:
    return Outbox(post, spawn=post.spawn)


async def names(outbox: Outbox, *wanted: str) -> list[tuple[str, int | None]]:
    stored = await outbox.add([span(name) for name in wanted])
    return [(one.name, one.sequence_id) for one in stored]


async def test_callers_of_one_moment_go_together_and_each_gets_its_own(post: Post, outbox: Outbox) -> None:
    answers = await asyncio.gather(names(outbox, "a", "b"), names(outbox, "c"), names(outbox, "d", "e"))
    assert answers == [[("a", 1), ("b", 2)], [("c", 3)], [("d", 4), ("e", 5)]]
    assert post.sent == [["a", "b", "c", "d", "e"]]


async def test_what_comes_while_requests_are_under_way_goes_in_the_next(post: Post, outbox: Outbox) -> None:
    post.gate.clear()
    calls: list[asyncio.Future[Any]] = []
    for number in range(MAX_REQUESTS + 3):
        calls.append(asyncio.ensure_future(names(outbox, f"s{number}")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert post.sent == [["s0"], ["s1"]]
    post.gate.set()
    await asyncio.gather(*calls)
    assert post.sent == [["s0"], ["s1"], ["s2", "s3", "s4"]]


async def test_one_callers_bad_span_fails_nobody_else(post: Post, outbox: Outbox) -> None:
    results = await asyncio.gather(
        names(outbox, "a"), names(outbox, "b", "bad"), names(outbox, "c"), return_exceptions=True
    )
    assert results[0] == [("a", 1)]
    assert isinstance(results[1], NotFoundError)
    assert results[2] == [("c", 2)]
    assert post.sent == [["a", "b", "bad", "c"], ["a"], ["b", "bad"], ["c"]]


async def test_a_span_that_is_not_json_never_joins(post: Post, outbox: Outbox) -> None:
    good, bad = await asyncio.gather(
        names(outbox, "a"), outbox.add([span("x", attributes={"a": {1}})]), return_exceptions=True
    )
    assert good == [("a", 1)]
    assert isinstance(bad, InvalidRequestError)
    assert post.sent == [["a"]]


async def test_a_store_that_is_away_fails_all_without_asking_for_each(post: Post, outbox: Outbox) -> None:
    post.down = StoreUnavailableError("away")
    results = await asyncio.gather(names(outbox, "a"), names(outbox, "b"), return_exceptions=True)
    assert [str(result) for result in results] == ["away", "away"]
    assert results[0] is not results[1]
    assert post.sent == [["a", "b"]]


async def test_a_caller_that_left_before_its_turn_is_not_sent(post: Post, outbox: Outbox) -> None:
    leaving, staying = asyncio.ensure_future(names(outbox, "a")), asyncio.ensure_future(names(outbox, "b"))
    leaving.cancel()
    assert await staying == [("b", 1)]
    assert post.sent == [["b"]]


async def test_a_caller_that_leaves_while_it_is_sent_fails_nobody(post: Post, outbox: Outbox) -> None:
    post.gate.clear()
    leaving, staying = asyncio.ensure_future(names(outbox, "a")), asyncio.ensure_future(names(outbox, "b"))
    await until(lambda: post.sent)
    leaving.cancel()
    post.gate.set()
    assert await staying == [("b", 2)]


async def test_a_list_that_is_too_long_for_one_request_goes_in_parts_in_order(
    post: Post, outbox: Outbox
) -> None:
    wanted = [str(number) for number in range(2 * wire.MAX_BATCH + 1)]
    stored = await names(outbox, *wanted)
    assert stored == [(name, number) for number, name in enumerate(wanted, 1)]
    assert [len(sent) for sent in post.sent] == [wire.MAX_BATCH, wire.MAX_BATCH, 1]


async def test_callers_share_a_request_only_as_far_as_it_holds_them(post: Post, outbox: Outbox) -> None:
    first = [str(number) for number in range(wire.MAX_BATCH - 1)]
    await asyncio.gather(names(outbox, *first), names(outbox, "a", "b"))
    assert [len(sent) for sent in post.sent] == [wire.MAX_BATCH - 1, 2]


async def test_a_part_that_is_refused_leaves_the_parts_before_it(post: Post, outbox: Outbox) -> None:
    wanted = [str(number) for number in range(wire.MAX_BATCH)]
    with pytest.raises(NotFoundError):
        await names(outbox, *wanted, "bad", "never sent alone")
    assert [len(sent) for sent in post.sent] == [wire.MAX_BATCH, 2]


async def test_spans_stored_otherwise_than_sent_come_back_as_stored(outbox: Outbox, post: Post) -> None:
    known = span("known", sequence_id=7, rollout_id="r")

    async def answer(body: bytes) -> bytes:
        sent = [Span(**fields) for fields in orjson.loads(body)]
        return wire.StoredSpans.of(sent, [known, sent[1]]).model_dump_json().encode()

    stored = await Outbox(answer, spawn=post.spawn).add([span("again"), span("new")])
    assert stored == [known, span("new")]


async def test_an_answer_about_fewer_spans_is_an_error(post: Post) -> None:
    async def answer(body: bytes) -> bytes:
        return b'{"sequence_ids": [1]}'

    with pytest.raises(StoreError, match="1 spans to 2"):
        await Outbox(answer, spawn=post.spawn).add([span("a"), span("b")])


async def test_no_spans_are_no_request(outbox: Outbox, post: Post) -> None:
    assert await outbox.add([]) == []
    assert post.sent == []


async def test_a_request_that_is_given_up_answers_its_callers(outbox: Outbox, post: Post) -> None:
    post.gate.clear()
    call = asyncio.ensure_future(names(outbox, "a"))
    await until(lambda: post.sent)
    for task in post.tasks:
        task.cancel()
    with pytest.raises(StoreUnavailableError, match="closed before"):
        await call
