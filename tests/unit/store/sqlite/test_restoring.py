"""What another store recorded comes in as it is there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from store_kinds import Clock

from agl.errors import ConflictError, InvalidRequestError, NotFoundError
from agl.store.paging import iter_attempts, iter_rollouts, iter_runs, iter_spans
from agl.store.restoring import Restores
from agl.store.sqlite import SqliteStore
from agl.types import (
    Attempt,
    AttemptQuery,
    ErrorInfo,
    RecordedRollout,
    RolloutConfig,
    Run,
    Span,
    SpanEvent,
    SpanLink,
    SpanQuery,
    SpanStatus,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(clock: Clock) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(":memory:", clock=clock) as opened:
        yield opened


RUN = Run(
    run_id="r", name="n", command="train", settings={"a": 1}, status="failed", created_at=1.5, finished_at=2.5
)


def attempt(number: int, status: Any, **fields: Any) -> Attempt:
    return Attempt(
        attempt_id=f"at-{number}",
        rollout_id="ro",
        sequence_id=number,
        worker_id="w",
        status=status,
        started_at=10.0 * number,
        last_heartbeat_at=10.0 * number + 1,
        **fields,
    )


def rollout(status: Any = "succeeded", **fields: Any) -> RecordedRollout:
    return RecordedRollout(
        rollout_id="ro",
        run_id="r",
        task={"text": "long " * 2000},
        mode="val",
        group_id="g",
        resources_id="gone",
        config=RolloutConfig(timeout_seconds=0.5, max_attempts=3),
        metadata={"k": [1, None]},
        priority=4,
        status=status,
        created_at=5.0,
        started_at=10.0,
        **fields,
    )


FINISHED = rollout(
    reward=0.0,
    reward_dimensions={"a": 0.5},
    finished_at=22.0,
    num_attempts=2,
    attempts=(
        attempt(1, "timeout", finished_at=12.0, error=ErrorInfo(cause="timeout", message="m"), lease=11.0),
        attempt(2, "succeeded", finished_at=22.0),
    ),
)


def span(number: int, attempt_id: str | None = "at-2", **fields: Any) -> Span:
    return Span(
        span_id=f"{number:016x}",
        trace_id="ab" * 16,
        parent_id="cd" * 8,
        name="chat m",
        kind="client",
        status=SpanStatus(code="error", description="d"),
        attributes={"n": number, "text": "word " * 2000, "nested": {"x": [1.5, None, True]}},
        events=(SpanEvent(name="e", time_ns=3, attributes={"k": "v"}),),
        links=(SpanLink(trace_id="ef" * 16, span_id="01" * 8, attributes={}),),
        resource={"service.name": "s"},
        start_time_ns=1,
        end_time_ns=2,
        rollout_id="ro",
        attempt_id=attempt_id,
        **fields,
    )


async def everything(store: SqliteStore) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    return (
        [one async for one in iter_runs(store)],
        [one async for one in iter_rollouts(store)],
        [one async for one in iter_attempts(store, AttemptQuery())],
        [one async for one in iter_spans(store, SpanQuery(rollout_id="ro"))],
    )


async def test_every_field_of_every_record_comes_back(store: SqliteStore) -> None:
    spans = [span(1, "at-1", sequence_id=1), span(2, sequence_id=7), span(3, sequence_id=3)]
    assert isinstance(store, Restores)

    counts = await store.restore(runs=[RUN], rollouts=[FINISHED], spans=spans)

    assert counts == {"runs": 1, "rollouts": 1, "attempts": 2, "spans": 3}
    runs, rollouts, attempts, stored = await everything(store)
    assert runs == [RUN]
    assert [one.model_dump() for one in rollouts] == [FINISHED.model_dump(exclude={"attempts"})]
    assert attempts == list(FINISHED.attempts)
    assert stored == [spans[0], spans[2], spans[1]]


async def test_what_is_known_stays_as_it_is_and_the_rest_is_added(store: SqliteStore) -> None:
    spans = [span(number, sequence_id=number) for number in range(1, 6)]
    await store.restore(runs=[RUN], rollouts=[FINISHED], spans=spans[:2])
    before = await everything(store)

    changed = FINISHED.model_copy(update={"reward": 1.0})
    counts = await store.restore(runs=[RUN], rollouts=[changed], spans=spans)

    assert counts == {"runs": 0, "rollouts": 0, "attempts": 0, "spans": 3}
    after = await everything(store)
    assert after[:3] == before[:3]
    assert after[3] == spans


async def test_nothing_restored_is_work_or_runs_out(store: SqliteStore, clock: Clock) -> None:
    running = rollout("running", num_attempts=1, attempts=(attempt(1, "running", lease=11.0),))
    pending = RecordedRollout(rollout_id="waits", task=1, created_at=6.0, retry_at=7.0, status="requeuing")
    await store.restore(rollouts=[running, pending], spans=[span(1, "at-1", sequence_id=1)])

    clock.advance(1e6)
    await store.sweep()

    assert await store.dequeue_rollout(worker_id="w") is None
    assert (await store.get_rollout_by_id("ro")).status == "running"
    assert await store.get_latest_attempt("ro") == running.attempts[0]
    assert (await store.cancel_rollout("waits")).status == "cancelled"


async def test_new_spans_of_a_restored_attempt_get_the_numbers_behind(store: SqliteStore) -> None:
    await store.restore(rollouts=[FINISHED], spans=[span(1, sequence_id=4)])
    assert await store.get_next_span_sequence_id("ro", "at-2") == 5


async def test_spans_of_no_known_attempt_take_everything_back(store: SqliteStore) -> None:
    with pytest.raises(NotFoundError, match="at-9"):
        await store.restore(runs=[RUN], rollouts=[FINISHED], spans=[span(1, "at-9")])
    assert await everything(store) == ([], [], [], [])


async def test_an_attempt_of_another_rollout_is_refused(store: SqliteStore) -> None:
    await store.restore(rollouts=[FINISHED])
    attempts = (FINISHED.attempts[0].model_copy(update={"rollout_id": "other"}),)
    other = FINISHED.model_copy(update={"rollout_id": "other", "attempts": attempts})
    with pytest.raises(ConflictError, match="attempt at-1 is another rollout's here"):
        await store.restore(rollouts=[other])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rollout_id": "a/b", "attempts": ()}, "'a/b' is no id"),
        ({"attempts": (attempt(1, "failed").model_copy(update={"attempt_id": ""}),)}, "'' is no id"),
        ({"rollout_id": "other"}, "rollout other has an attempt of another rollout"),
        (
            {"attempts": (attempt(1, "failed"), attempt(1, "failed").model_copy(update={"attempt_id": "x"}))},
            "two attempts of rollout ro have the same sequence_id",
        ),
        ({"priority": 2**70}, "a number is too large"),
    ],
)
async def test_records_that_no_store_has_are_refused(
    store: SqliteStore, wrong: dict[str, Any], message: str
) -> None:
    record = FINISHED.model_copy(update=wrong)
    with pytest.raises(InvalidRequestError, match=message):
        await store.restore(rollouts=[record])


async def test_the_counts_of_the_store_know_of_them(store: SqliteStore) -> None:
    await store.restore(runs=[RUN], rollouts=[FINISHED], spans=[span(1), span(2, None)])
    counts = await store.statistics(run_id="r")
    assert (counts["rollouts"]["succeeded"], counts["attempts"]["timeout"], counts["spans"]) == (1, 1, 2)
