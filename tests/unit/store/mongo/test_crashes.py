"""A server process killed between any two writes of any call leaves a state from which another process goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fake_mongo import Crash, FakeClient, FakeMongo

from agl.store.mongo import MongoStore
from agl.store.paging import iter_attempts, iter_rollouts, iter_spans
from agl.types import (
    AttemptQuery,
    ErrorInfo,
    MetricQuery,
    RolloutConfig,
    RolloutQuery,
    RolloutRequest,
    Span,
    SpanQuery,
)

CONFIG = RolloutConfig(unresponsive_seconds=10.0, max_attempts=5)
KEY = ("ro-0", "at-held")
SPANS = [
    Span(
        span_id=f"{number:016x}",
        trace_id="ab" * 16,
        name="s",
        start_time_ns=1,
        rollout_id=KEY[0],
        attempt_id=KEY[1],
    )
    for number in range(3)
]
MOST_WRITES = 40


def requests(count: int, **fields: Any) -> list[RolloutRequest]:
    return [
        RolloutRequest(task=number, rollout_id=f"ro-{number}", config=CONFIG, **fields)
        for number in range(count)
    ]


async def nothing(store: MongoStore) -> None:
    pass


async def three_queued(store: MongoStore) -> None:
    await store.add_resources({"n": 1}, resources_id="rs")
    await store.enqueue_many_rollouts(requests(3))


async def one_held(store: MongoStore) -> None:
    store._access.new_id = lambda prefix: f"{prefix}-held"
    await three_queued(store)
    await store.register_worker("w")
    await store.dequeue_rollout(worker_id="w", request_id="q")


async def a_run_over(store: MongoStore) -> None:
    await store.add_run(name="n", run_id="r")
    await store.add_metrics("r", 1, {"a": 1.0, "b": 2.0})
    await store.add_resources({"n": 1}, run_id="r", resources_id="rs")
    await store.enqueue_many_rollouts(requests(3, run_id="r"))
    for held in await store.dequeue_many_rollouts(worker_id="w", limit=3):
        key = (held.rollout.rollout_id, held.attempt.attempt_id)
        await store.add_otel_span(*key, SPANS[0].model_copy(update={"span_id": held.rollout.rollout_id}))
        await store.update_attempt(*key, status="succeeded", reward=1.0)
    await store.update_run("r", status="succeeded")


CALLS: dict[str, tuple[Callable[[MongoStore], Awaitable[None]], Callable[[MongoStore], Awaitable[Any]]]] = {
    "enqueue": (nothing, lambda store: store.enqueue_many_rollouts(requests(4))),
    "start": (nothing, lambda store: store.start_rollout(requests(1)[0], worker_id="w")),
    "dequeue": (
        three_queued,
        lambda store: store.dequeue_many_rollouts(worker_id="w", limit=1, request_id="q"),
    ),
    "undo": (one_held, lambda store: store.undo_dequeue(worker_id="w", request_id="q")),
    "succeed": (one_held, lambda store: store.update_attempt(*KEY, status="succeeded", reward=0.5)),
    "fail": (
        one_held,
        lambda store: store.update_attempt(*KEY, status="failed", error=ErrorInfo(cause="boom")),
    ),
    "cancel": (one_held, lambda store: store.cancel_rollout(KEY[0])),
    "take back": (one_held, lambda store: store.update_rollout(KEY[0], status="requeuing")),
    "heartbeat": (one_held, lambda store: store.worker_heartbeat("w", attempts=[KEY[1]])),
    "spans": (one_held, lambda store: store.add_many_spans(SPANS)),
    "resources": (three_queued, lambda store: store.add_resources({"n": 2}, resources_id="rs-2")),
    "metrics": (a_run_over, lambda store: store.add_metrics("r", 2, {"a": 3.0, "b": 4.0})),
    "delete": (a_run_over, lambda store: store.delete_run("r")),
}


async def killed(store: MongoStore) -> None:
    """Let a process be gone: nothing of it runs on, and it says goodbye to nobody."""
    for task in store._beside:
        task.cancel()
    await asyncio.gather(*store._beside, return_exceptions=True)
    await store._access._client.close()  # pyright: ignore[reportOptionalMemberAccess]


async def state(store: MongoStore) -> dict[str, Any]:
    """Return what callers can see, without the ids and numbers that a repeat may choose anew."""
    spans = [one async for one in iter_spans(store, SpanQuery())]
    metrics = {}
    if (await store.query_runs()).items:
        points = (await store.query_metrics(MetricQuery(run_id="r"))).items
        metrics = {(one.name, one.step): one.value for one in points}
    return {
        "rollouts": [
            (one.rollout_id, one.status, one.reward, one.resources_id, one.num_attempts)
            async for one in iter_rollouts(store)
        ],
        "attempts": sorted(
            [
                (one.rollout_id, one.sequence_id, one.status)
                async for one in iter_attempts(store, AttemptQuery())
            ]
        ),
        "spans": sorted(one.span_id for one in spans),
        "resources": [one.resources_id for one in (await store.list_resources()).items],
        "metrics": metrics,
        "runs": [one.run_id for one in (await store.query_runs()).items],
    }


async def consistent(store: MongoStore) -> None:
    """Check what must hold whatever happened."""
    counts = await store.statistics()
    rollouts = [one async for one in iter_rollouts(store)]
    attempts = [one async for one in iter_attempts(store, AttemptQuery())]
    assert sum(counts["rollouts"].values()) == len(rollouts)
    assert sum(counts["attempts"].values()) == len(attempts) == sum(one.num_attempts for one in rollouts)
    for rollout in rollouts:
        tries = [one for one in attempts if one.rollout_id == rollout.rollout_id]
        assert [one.sequence_id for one in tries] == list(range(1, len(tries) + 1))
        is_open = [one for one in tries if one.finished_at is None]
        assert len(is_open) == (rollout.status in ("preparing", "running"))
        waits = (await store.query_rollouts(RolloutQuery(rollout_ids=(rollout.rollout_id,)))).items[0]
        assert waits == rollout


@pytest.mark.parametrize("name", list(CALLS))
async def test_a_process_killed_at_any_write_is_made_good_by_the_calls_repeat(name: str, clock: Any) -> None:
    prepare, call = CALLS[name]

    async def run(writes: int | None) -> tuple[dict[str, Any], bool]:
        database = FakeMongo()
        first = MongoStore("mongodb://fake", clock=clock, connect=FakeClient(database))  # pyright: ignore[reportArgumentType]
        await first.open()
        await prepare(first)
        database.crash_after(writes)
        crashed = False
        try:
            await call(first)
        except Crash:
            crashed = True
        database.crash_after(None)
        await killed(first)
        async with MongoStore(
            "mongodb://fake",
            clock=clock,
            connect=FakeClient(database),  # pyright: ignore[reportArgumentType]
        ) as second:
            await consistent(second)
            if crashed and not (name == "delete" and not (await second.query_runs()).items):
                await call(second)
                await consistent(second)
            return await state(second), crashed

    whole, _ = await run(None)
    for writes in range(MOST_WRITES):
        seen, crashed = await run(writes)
        assert seen == whole, f"killed after {writes} writes"
        if not crashed:
            break
    assert not crashed, "the call has more writes than were tried"
    assert writes > 0, "the call never wrote"


@pytest.mark.parametrize("writes", range(12))
async def test_a_killed_batch_is_there_whole_or_not_at_all(writes: int, clock: Any) -> None:
    database = FakeMongo()
    first = MongoStore("mongodb://fake", clock=clock, connect=FakeClient(database))  # pyright: ignore[reportArgumentType]
    await first.open()
    database.crash_after(writes)
    try:
        await first.enqueue_many_rollouts(requests(5))
    except Crash:
        assert writes < 8  # one batch, five rollouts, its deletion
    database.crash_after(None)
    await killed(first)
    async with MongoStore("mongodb://fake", clock=clock, connect=FakeClient(database)) as second:  # pyright: ignore[reportArgumentType]
        claimed = await second.dequeue_many_rollouts(worker_id="w", limit=9)
        assert [held.rollout.task for held in claimed] in ([], [0, 1, 2, 3, 4])
        assert not database["batches"].documents


async def test_a_claim_of_many_that_was_killed_is_answered_as_far_as_it_got(clock: Any) -> None:
    database = FakeMongo()
    first = MongoStore("mongodb://fake", clock=clock, connect=FakeClient(database))  # pyright: ignore[reportArgumentType]
    await first.open()
    await three_queued(first)
    database.crash_after(3)  # claimed and pinned, claimed
    with pytest.raises(Crash):
        await first.dequeue_many_rollouts(worker_id="w", limit=3, request_id="q")
    database.crash_after(None)
    await killed(first)
    async with MongoStore("mongodb://fake", clock=clock, connect=FakeClient(database)) as second:  # pyright: ignore[reportArgumentType]
        claimed = await second.dequeue_many_rollouts(worker_id="w", limit=3, request_id="q")
        assert [(held.rollout.task, held.rollout.resources_id) for held in claimed] == [(0, "rs"), (1, "rs")]
        rest = await second.dequeue_many_rollouts(worker_id="w", limit=3)
        assert [held.rollout.task for held in rest] == [2]


async def test_an_attempt_whose_claimer_was_killed_is_given_to_another(clock: Any) -> None:
    crashed = 0
    for writes in range(1, 6):
        database = FakeMongo()
        first = MongoStore("mongodb://fake", clock=clock, connect=FakeClient(database))  # pyright: ignore[reportArgumentType]
        await first.open()
        await three_queued(first)
        database.crash_after(writes)
        try:
            await first.dequeue_many_rollouts(worker_id="w", limit=3)
        except Crash:
            crashed += 1
        database.crash_after(None)
        await killed(first)
        async with MongoStore("mongodb://fake", clock=clock, connect=FakeClient(database)) as second:  # pyright: ignore[reportArgumentType]
            clock.now += 10.0
            claimed = await second.dequeue_many_rollouts(worker_id="w2", limit=9)
            assert sorted(held.rollout.task for held in claimed) == [0, 1, 2]
            assert {held.rollout.resources_id for held in claimed} == {"rs"}
    assert crashed == 5
