from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fake_mongo import FakeMongo

from agl.store.mongo import MongoStore, keeping
from agl.store.mongo.access import Access
from agl.store.mongo.documents import NEVER
from agl.types import RolloutConfig, RolloutRequest

CONFIG = RolloutConfig(unresponsive_seconds=10)


async def test_a_look_ends_what_is_overdue_and_names_the_next_deadline(
    store: MongoStore, access: Access, clock: Any
) -> None:
    for number, seconds in enumerate((5.0, 20.0, None)):
        config = RolloutConfig(timeout_seconds=seconds)
        await store.start_rollout(RolloutRequest(task="t", rollout_id=f"ro-{number}", config=config))
    await store.enqueue_rollout(RolloutRequest(task="t", config=RolloutConfig(timeout_seconds=1.0)))
    assert await keeping.look(access, 1004.0) == 1005.0
    assert await keeping.look(access, 1005.0) == 1020.0
    assert (await store.get_rollout_by_id("ro-0")).status == "failed"
    assert await keeping.look(access, 1020.0) == NEVER
    assert (await store.statistics())["rollouts"]["pending"] == 1


async def test_silence_while_no_process_listened_is_forgiven(
    another: Callable[[], MongoStore], clock: Any
) -> None:
    async with another() as store:
        await store.start_rollout(RolloutRequest(task="t", rollout_id="ro", config=CONFIG))
    clock.now += 60.0
    async with another() as store:
        assert (await store.get_rollout_by_id("ro")).status == "preparing"
        attempt = await store.get_latest_attempt("ro")
        assert attempt is not None
        assert attempt.lease == clock.now + 10.0
        clock.now += 10.0
        await store.sweep()
        assert (await store.get_rollout_by_id("ro")).status == "failed"


async def test_silence_while_another_process_listened_is_not_forgiven(
    store: MongoStore, another: Callable[[], MongoStore], clock: Any
) -> None:
    await store.start_rollout(RolloutRequest(task="t", rollout_id="ro", config=CONFIG))
    clock.now += 10.0
    await keeping.show_life(store._access, store._server_id)
    async with another() as other:
        assert (await other.get_rollout_by_id("ro")).status == "failed"


async def test_a_time_limit_goes_on_while_no_process_is_there(
    another: Callable[[], MongoStore], clock: Any
) -> None:
    async with another() as store:
        config = RolloutConfig(timeout_seconds=5)
        await store.start_rollout(RolloutRequest(task="t", rollout_id="ro", config=config))
    clock.now += 5.0
    async with another() as store:
        assert (await store.get_rollout_by_id("ro")).status == "failed"


async def test_who_leaves_does_not_listen_any_more(
    store: MongoStore, another: Callable[[], MongoStore], database: FakeMongo
) -> None:
    async with another():
        assert sum("kind" in one for one in database["store"].documents.values()) == 2
    assert sum("kind" in one for one in database["store"].documents.values()) == 1


async def test_a_poll_tells_waiters_what_others_wrote(
    store: MongoStore, another: Callable[[], MongoStore]
) -> None:
    async with another() as other:
        claim = asyncio.create_task(store.dequeue_rollout(worker_id="w", run_id="r", wait_seconds=60))
        for _ in range(10):  # until it waits
            await asyncio.sleep(0)
        await other.enqueue_many_rollouts(
            [RolloutRequest(task="t", rollout_id="ro", run_id="r"), RolloutRequest(task="t")]
        )
        await keeping.poll(store._access)
        held = await asyncio.wait_for(claim, 10)
        assert held is not None
        end = asyncio.create_task(store.wait_for_rollouts(["ro"]))
        for _ in range(10):  # until it waits
            await asyncio.sleep(0)
        await other.cancel_rollout("ro")
        await keeping.poll(store._access)
        assert [one.status for one in await asyncio.wait_for(end, 10)] == ["cancelled"]
