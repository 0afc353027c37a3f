"""What every LightningStore promises about pauses before retries, and about waits for some of many rollouts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agl.errors import ConflictError, NotFoundError
from agl.store.base import LightningStore
from agl.store.retries import pause_seconds
from agl.types import AttemptedRollout, Rollout, RolloutConfig, RolloutRequest

PAUSING = RolloutConfig(max_attempts=5, retry_delay_seconds=4.0, retry_max_delay_seconds=10.0)
"""Pauses of 2 to 4, 4 to 8, 5 to 10 and 5 to 10 seconds."""


async def enqueue(store: LightningStore, *names: str, **fields: Any) -> None:
    config = fields.pop("config", PAUSING)
    requests = [RolloutRequest(task=0, rollout_id=name, config=config, **fields) for name in names]
    await store.enqueue_many_rollouts(requests)


async def claim(store: LightningStore, **options: Any) -> AttemptedRollout | None:
    return await store.dequeue_rollout(worker_id="w", **options)


async def fail(store: LightningStore, held: AttemptedRollout | None) -> Rollout:
    assert held is not None
    key = (held.rollout.rollout_id, held.attempt.attempt_id)
    return (await store.update_attempt(*key, status="failed")).rollout


# Pauses.


async def test_a_retry_is_claimable_only_at_its_time(store: LightningStore, clock: Any) -> None:
    await enqueue(store, "ro")
    rollout = await fail(store, await claim(store))
    assert (rollout.status, rollout.error, rollout.finished_at) == ("requeuing", None, None)
    assert rollout.retry_at == clock.now + pause_seconds(PAUSING, "ro", 1)
    assert await store.get_rollout_by_id("ro") == rollout
    assert await claim(store) is None
    clock.advance(rollout.retry_at - clock.now - 0.001)
    assert await claim(store) is None
    clock.advance(0.001)
    held = await claim(store)
    assert held is not None
    assert (held.attempt.sequence_id, held.rollout.retry_at) == (2, None)


async def test_each_pause_is_twice_the_one_before_up_to_the_limit(store: LightningStore, clock: Any) -> None:
    await enqueue(store, "ro")
    for longest in (4.0, 8.0, 10.0, 10.0):
        rollout = await fail(store, await claim(store))
        assert rollout.retry_at is not None
        assert longest / 2 <= rollout.retry_at - clock.now <= longest
        clock.advance(longest)
    rollout = await fail(store, await claim(store))
    assert (rollout.status, rollout.retry_at, rollout.num_attempts) == ("failed", None, 5)


async def test_a_waiting_claim_wakes_when_a_pause_ends(store: LightningStore, clock: Any) -> None:
    config = RolloutConfig(max_attempts=2, retry_delay_seconds=0.2)
    await enqueue(store, "ro", config=config)
    await fail(store, await claim(store))
    waiting = asyncio.create_task(claim(store, wait_seconds=30.0))
    clock.advance(0.2)  # nobody writes: the store's own timer must find out
    held = await asyncio.wait_for(waiting, 10.0)
    assert held is not None
    assert held.attempt.sequence_id == 2


async def test_a_retry_joins_the_end_of_its_priority_when_its_pause_ends(
    store: LightningStore, clock: Any
) -> None:
    await enqueue(store, "retried")
    await enqueue(store, "before", config=RolloutConfig())
    await fail(store, await claim(store))
    await enqueue(store, "meanwhile", config=RolloutConfig())
    await enqueue(store, "urgent", priority=1)
    clock.advance(4.0)
    assert (await fail(store, await claim(store))).rollout_id == "urgent"
    await enqueue(store, "behind", config=RolloutConfig())
    claimed = await store.dequeue_many_rollouts(worker_id="w", limit=9)
    assert [one.rollout.rollout_id for one in claimed] == ["before", "meanwhile", "retried", "behind"]


async def test_pauses_end_in_the_order_of_their_ends(store: LightningStore, clock: Any) -> None:
    names = [f"ro-{number}" for number in range(40)]
    await enqueue(store, *names)
    held = await store.dequeue_many_rollouts(worker_id="w", limit=40)
    ends = {one.rollout.rollout_id: (await fail(store, one)).retry_at for one in held}
    assert len(set(ends.values())) == 40  # failed together, they do not come back together
    clock.advance(4.0)
    claimed = await store.dequeue_many_rollouts(worker_id="w", limit=99)
    assert [one.rollout.rollout_id for one in claimed] == sorted(names, key=lambda name: ends[name] or 0.0)


async def test_lost_workers_and_time_limits_lead_to_a_pause_too(store: LightningStore, clock: Any) -> None:
    lost = PAUSING.model_copy(update={"unresponsive_seconds": 5.0})
    slow = PAUSING.model_copy(update={"timeout_seconds": 5.0})
    await enqueue(store, "lost", config=lost)
    await enqueue(store, "slow", config=slow)
    await store.dequeue_many_rollouts(worker_id="w", limit=2)
    clock.advance(5.0)
    assert await claim(store) is None
    for name in ("lost", "slow"):
        rollout = await store.get_rollout_by_id(name)
        assert (rollout.status, rollout.retry_at) == (
            "requeuing",
            clock.now + pause_seconds(PAUSING, name, 1),
        )


async def test_a_rollout_given_back_by_its_worker_does_not_pause(store: LightningStore) -> None:
    await enqueue(store, "ro")
    await claim(store)
    assert (await store.update_rollout("ro", status="requeuing")).retry_at is None
    assert await claim(store) is not None


async def test_a_claim_taken_back_does_not_pause_again(store: LightningStore, clock: Any) -> None:
    await enqueue(store, "ro")
    await fail(store, await claim(store))
    clock.advance(4.0)
    assert await claim(store, request_id="q") is not None
    assert await store.undo_dequeue(worker_id="w", request_id="q") == ["ro"]
    held = await claim(store)
    assert held is not None
    assert held.attempt.sequence_id == 2


async def test_a_pausing_rollout_can_be_started_at_once_or_cancelled(
    store: LightningStore, clock: Any
) -> None:
    await enqueue(store, "a", "b")
    for one in await store.dequeue_many_rollouts(worker_id="w", limit=2):
        await fail(store, one)
    assert (await store.start_attempt("a")).rollout.retry_at is None
    cancelled = await store.cancel_rollout("b")
    assert (cancelled.status, cancelled.retry_at) == ("cancelled", None)
    clock.advance(4.0)
    assert await claim(store) is None
    with pytest.raises(ConflictError):
        await store.start_attempt("b")


async def test_a_change_of_priority_or_limits_does_not_end_a_pause(store: LightningStore, clock: Any) -> None:
    await enqueue(store, "ro")
    rollout = await fail(store, await claim(store))
    changed = await store.update_rollout("ro", priority=3, config=RolloutConfig(max_attempts=2))
    assert changed.retry_at == rollout.retry_at
    assert await claim(store) is None
    clock.advance(4.0)
    assert await claim(store) is not None


async def test_statistics_tell_how_many_pause(store: LightningStore, clock: Any) -> None:
    await enqueue(store, "a", "b", run_id="r")
    await enqueue(store, "c", run_id="other")
    for one in await store.dequeue_many_rollouts(worker_id="w", limit=3):
        await fail(store, one)
    counts = await store.statistics(run_id="r")
    assert (counts["pausing"], counts["rollouts"]["requeuing"]) == (2, 2)
    assert (await store.statistics())["pausing"] == 3
    clock.advance(4.0)
    await claim(store)
    counts = await store.statistics()
    assert (counts["pausing"], counts["rollouts"]["requeuing"]) == (0, 2)


# Waits for some of many.


async def test_a_wait_for_some_ends_when_so_many_are_terminal(store: LightningStore) -> None:
    names = [f"ro-{number}" for number in range(5)]
    await enqueue(store, *names, config=RolloutConfig())
    waiting = asyncio.create_task(store.wait_for_rollouts(names, at_least=3, timeout_seconds=30.0))
    for _ in range(2):
        await fail(store, await claim(store))
    await asyncio.sleep(0)
    assert not waiting.done()
    await fail(store, await claim(store))
    done = await asyncio.wait_for(waiting, 10.0)
    assert [one.rollout_id for one in done] == names[:3]


async def test_a_wait_for_what_is_there_already_returns_at_once(store: LightningStore) -> None:
    await enqueue(store, "a", "b", config=RolloutConfig())
    await fail(store, await claim(store))
    for at_least, found in ((0, ["a"]), (1, ["a"])):
        done = await store.wait_for_rollouts(["a", "b"], at_least=at_least, timeout_seconds=30.0)
        assert [one.rollout_id for one in done] == found
    await fail(store, await claim(store))
    done = await store.wait_for_rollouts(["b", "a", "b"], at_least=9, timeout_seconds=30.0)
    assert [one.rollout_id for one in done] == ["b", "a", "b"]
    with pytest.raises(NotFoundError):
        await store.wait_for_rollouts(["a", "unknown"], at_least=1, timeout_seconds=30.0)
