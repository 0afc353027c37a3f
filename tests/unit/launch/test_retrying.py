"""Asking again for rollouts that ended badly."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agl.launch.retrying import enqueue_retries, first_id, planned_retry, runners_for
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ErrorInfo, Rollout, RolloutConfig, RolloutRequest


@pytest.fixture
async def store() -> AsyncIterator[InMemoryLightningStore]:
    async with InMemoryLightningStore() as store:
        yield store


async def failed(store: InMemoryLightningStore, rollout_id: str) -> Rollout:
    """End a rollout that waits, or a new one, without success."""
    named = await store.add_resources({"x": 1})
    request = RolloutRequest(
        task={"q": 1},
        rollout_id=rollout_id,
        run_id="run",
        mode="test",
        group_id="g",
        resources_id=named.resources_id,
        config=RolloutConfig(timeout_seconds=9.0),
        metadata={"seed": 3, "abandoned": True},
        priority=2,
    )
    await store.enqueue_rollout(request)
    held = await store.start_attempt(rollout_id)
    ended = await store.update_attempt(
        rollout_id, held.attempt.attempt_id, status="failed", error=ErrorInfo(cause="Boom")
    )
    return ended.rollout


async def retried(store: InMemoryLightningStore, rollout: Rollout) -> Rollout:
    (now,) = await enqueue_retries(store, [await planned_retry(store, rollout)])
    return now


async def test_a_retry_asks_for_the_same_again(store: InMemoryLightningStore) -> None:
    old = await failed(store, "r")
    new = await retried(store, old)
    assert new.rollout_id == "r-retry-1"
    for name in ("task", "run_id", "mode", "group_id", "resources_id", "config", "priority"):
        assert getattr(new, name) == getattr(old, name), name
    assert new.metadata == {"seed": 3, "retry_of": "r"}
    assert (new.status, new.reward, new.error) == ("pending", None, None)


async def test_a_repeated_retry_enqueues_nothing(store: InMemoryLightningStore) -> None:
    old = await failed(store, "r")
    assert await retried(store, old) == await retried(store, old)
    assert (await store.statistics())["rollouts"]["pending"] == 1


async def test_a_retry_that_failed_is_followed_by_the_next_under_the_first_ones_name(
    store: InMemoryLightningStore,
) -> None:
    old = await failed(store, "r")
    await retried(store, old)
    held = await store.start_attempt("r-retry-1")
    await store.update_attempt("r-retry-1", held.attempt.attempt_id, status="failed")
    again = await store.get_rollout_by_id("r-retry-1")
    second = await retried(store, again)
    assert (second.rollout_id, first_id(second)) == ("r-retry-2", "r")
    assert (await retried(store, old)).rollout_id == "r-retry-2"


async def test_what_is_open_or_has_succeeded_stands_for_itself(store: InMemoryLightningStore) -> None:
    waits = await store.enqueue_rollout(RolloutRequest(task=1))
    plan = await planned_retry(store, waits)
    assert (plan.retry_id, plan.existing) == (waits.rollout_id, waits)
    old = await failed(store, "r")
    await retried(store, old)
    held = await store.start_attempt("r-retry-1")
    await store.update_attempt("r-retry-1", held.attempt.attempt_id, status="succeeded", reward=1.0)
    assert (await retried(store, old)).status == "succeeded"


async def test_a_retrys_id_has_room_behind_the_longest_of_ids(store: InMemoryLightningStore) -> None:
    old = await failed(store, "r" * 200)
    assert (await retried(store, old)).rollout_id == f"{'r' * 180}-retry-1"


async def test_runners_of_the_run_or_of_any_are_those_who_would_execute_it(
    store: InMemoryLightningStore,
) -> None:
    stats = {
        "all": {"run_id": None},
        "mine": {"run_id": "run"},
        "other": {"run_id": "x"},
        "gone": {"ended": True},
    }
    for name, said in stats.items():
        await store.register_worker(name)
        await store.worker_heartbeat(name, stats=said)
    assert {worker.worker_id for worker in await runners_for(store, "run")} == {"all", "mine"}
