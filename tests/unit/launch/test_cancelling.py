"""Cancelling rollouts."""

from __future__ import annotations

from agl.launch.cancelling import Cancel, cancel, cancel_run, count_open
from agl.store.sqlite import InMemoryLightningStore
from agl.types import RolloutRequest


async def test_what_has_ended_stays_and_what_is_open_is_cancelled_with_its_attempt() -> None:
    async with InMemoryLightningStore() as store:
        waits = await store.enqueue_rollout(RolloutRequest(task=1))
        runs = await store.start_rollout(RolloutRequest(task=2))
        done = await store.start_rollout(RolloutRequest(task=3))
        await store.update_attempt(done.rollout.rollout_id, done.attempt.attempt_id, status="succeeded")
        ended = await store.get_rollout_by_id(done.rollout.rollout_id)
        found = [await cancel(store, one) for one in (waits, runs.rollout, ended)]
        assert [(one.was, one.now, one.changed) for one in found] == [
            ("pending", "cancelled", True),
            ("preparing", "cancelled", True),
            ("succeeded", "succeeded", False),
        ]
        attempt = await store.get_latest_attempt(runs.rollout.rollout_id)
        assert attempt is not None
        assert attempt.status == "cancelled"


async def test_a_rollout_that_ends_at_the_last_moment_is_told_as_it_ended() -> None:
    async with InMemoryLightningStore() as store:
        started = await store.start_rollout(RolloutRequest(task=1))
        ids = started.rollout.rollout_id, started.attempt.attempt_id
        await store.update_attempt(*ids, status="succeeded")
        assert await cancel(store, started.rollout) == Cancel(
            rollout_id=ids[0], was="preparing", now="succeeded"
        )


async def test_all_open_rollouts_of_a_run_are_cancelled_and_no_others() -> None:
    async with InMemoryLightningStore() as store:
        requests = [RolloutRequest(task=n, run_id="a", rollout_id=f"a-{n}") for n in range(5)]
        await store.enqueue_many_rollouts([*requests, RolloutRequest(task=9, run_id="b")])
        await store.cancel_rollout("a-0")
        assert await count_open(store, "a") == {"pending": 4}
        found = [one async for one in cancel_run(store, "a", page_size=2)]
        assert [one.rollout_id for one in found] == ["a-1", "a-2", "a-3", "a-4"]
        assert await count_open(store, "a") == {}
        assert await count_open(store, "b") == {"pending": 1}
