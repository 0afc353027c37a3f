from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agl.errors import InvalidRequestError
from agl.store.mongo import MongoStore
from agl.types import MetricQuery, RolloutConfig, RolloutRequest


async def test_a_run_opened_by_two_processes_is_one(
    store: MongoStore, another: Callable[[], MongoStore]
) -> None:
    async with another() as other:
        one, two = await asyncio.gather(
            store.add_run(name="a", run_id="r"), other.add_run(name="b", run_id="r")
        )
    assert one == two


async def test_a_metric_stored_by_two_processes_at_once_has_one_value(
    store: MongoStore, another: Callable[[], MongoStore]
) -> None:
    await store.add_run(name="a", run_id="r")
    async with another() as other:
        await asyncio.gather(*(one.add_metrics("r", 1, {"loss": 1.0}) for one in (store, other)))
    assert len((await store.query_metrics(MetricQuery(run_id="r"))).items) == 1


async def test_runs_whose_ids_and_steps_run_together_keep_their_metrics_apart(store: MongoStore) -> None:
    for run_id, step in (("r", 11), ("r1", 1)):
        await store.add_run(name="a", run_id=run_id)
        await store.add_metrics(run_id, step, {"loss": float(step)})
    for run_id, step in (("r", 11), ("r1", 1)):
        (point,) = (await store.query_metrics(MetricQuery(run_id=run_id))).items
        assert (point.step, point.value) == (step, float(step))


async def test_a_step_beyond_64_bits_is_refused(store: MongoStore) -> None:
    await store.add_run(name="a", run_id="r")
    with pytest.raises(InvalidRequestError, match="64 bits"):
        await store.add_metrics("r", 2**70, {"loss": 1.0})


async def test_attempts_are_counted_by_their_ends(store: MongoStore) -> None:
    config = RolloutConfig(max_attempts=3)
    await store.enqueue_rollout(RolloutRequest(task="t", run_id="r", config=config))
    for end in ("failed", "timeout", "succeeded"):
        held = await store.dequeue_rollout(worker_id=end)
        assert held is not None
        await store.update_attempt(held.rollout.rollout_id, held.attempt.attempt_id, status=end)  # pyright: ignore[reportArgumentType]
    await store.start_rollout(RolloutRequest(task="t", run_id="s"))
    counts = await store.statistics(run_id="r")
    ended = {status: count for status, count in counts["attempts"].items() if count}
    assert ended == {"failed": 1, "timeout": 1, "succeeded": 1}
    assert counts["workers"] == 3
    assert sum((await store.statistics())["attempts"].values()) == 4
