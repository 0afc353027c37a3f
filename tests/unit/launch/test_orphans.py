"""What runners did after their run's process had died is done again; what they did before is not."""

from __future__ import annotations

import asyncio

from agl.evaluation.rollouts import ABANDONED
from agl.launch.orphans import SIGN_SECONDS, set_aside_orphans, signs_of_life
from agl.store.base import LightningStore
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.types import RolloutQuery, RolloutRequest


async def finish(store: LightningStore, *names: str, run_id: str = "r") -> None:
    """Rollouts that are executed and end now, one well and the next badly."""
    await store.enqueue_many_rollouts(
        [RolloutRequest(task=1, rollout_id=name, run_id=run_id) for name in names]
    )
    claims = await store.dequeue_many_rollouts(worker_id="w", limit=len(names))
    for number, claim in enumerate(claims):
        status = "failed" if number % 2 else "succeeded"
        await store.update_attempt(claim.rollout.rollout_id, claim.attempt.attempt_id, status=status)


async def test_what_ended_after_the_last_sign_of_life_is_set_aside_however_it_ended() -> None:
    naps: list[float] = []
    told = asyncio.Event()

    async def sleep(seconds: float) -> None:
        naps.append(seconds)
        told.set()
        await asyncio.Event().wait()

    async with InMemoryLightningStore() as store:
        await store.add_run(name="n", run_id="r")
        await finish(store, "before-1", "before-2")
        await asyncio.sleep(0.002)  # the store's clock tells them apart
        async with signs_of_life(store, "r", sleep=sleep):
            await told.wait()
        await asyncio.sleep(0.002)
        await finish(store, "after-1", "after-2")
        await finish(store, "of-another-run", run_id="q")
        assert await set_aside_orphans(store, "r") == 2
        rollouts = (await store.query_rollouts(RolloutQuery())).items
        aside = {rollout.rollout_id for rollout in rollouts if ABANDONED in rollout.metadata}
    assert aside == {"after-1", "after-2"}
    assert naps == [SIGN_SECONDS]


async def test_a_repeated_sign_moves_the_moment() -> None:
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(0.002)

    async with InMemoryLightningStore() as store:
        await store.add_run(name="n", run_id="r")
        async with signs_of_life(store, "r", sleep=sleep):
            await asyncio.sleep(0.01)
            await finish(store, "during")
            await asyncio.sleep(0.05)
        assert await set_aside_orphans(store, "r") == 0


async def test_a_run_without_signs_has_no_orphans() -> None:
    async with InMemoryLightningStore() as store:
        await store.add_run(name="n", run_id="r")
        await finish(store, "done")
        assert await set_aside_orphans(store, "r") == 0


async def test_a_store_that_is_away_ends_no_run() -> None:
    """The file is not open, so every call fails; the block runs all the same."""
    store = SqliteLightningStore("never-opened.sqlite")
    async with signs_of_life(store, "r"):
        await asyncio.sleep(0.01)
