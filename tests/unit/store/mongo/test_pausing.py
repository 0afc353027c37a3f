from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fake_mongo import FakeMongo

from agl.store.mongo import MongoStore, keeping, pausing
from agl.store.mongo.access import Access
from agl.store.mongo.documents import NEVER
from agl.store.retries import pause_seconds
from agl.types import RolloutConfig, RolloutRequest

CONFIG = RolloutConfig(max_attempts=3, retry_delay_seconds=10)


async def failed(store: MongoStore, *names: str) -> None:
    requests = [RolloutRequest(task=0, rollout_id=name, config=CONFIG) for name in names]
    await store.enqueue_many_rollouts(requests)
    for held in await store.dequeue_many_rollouts(worker_id="w", limit=len(names)):
        await store.update_attempt(held.rollout.rollout_id, held.attempt.attempt_id, status="failed")


async def test_a_look_names_the_end_of_the_next_pause(store: MongoStore, access: Access) -> None:
    await failed(store, "a", "b")
    ends = sorted(1000.0 + pause_seconds(CONFIG, name, 1) for name in ("a", "b"))
    assert await keeping.look(access, 1000.0) == ends[0]
    assert await keeping.look(access, ends[0]) == ends[1]
    assert await keeping.look(access, ends[1]) == NEVER
    assert (await store.statistics())["pausing"] == 0


async def test_another_process_ends_the_pause_when_the_one_that_began_it_died(
    store: MongoStore, another: Callable[[], MongoStore], database: FakeMongo, clock: Any
) -> None:
    await failed(store, "ro")
    async with another() as survivor:
        clock.now += 10.0
        await survivor.sweep()
        held = await survivor.dequeue_rollout(worker_id="w2")
    assert held is not None
    assert held.attempt.sequence_id == 2


async def test_two_processes_that_look_at_once_release_a_rollout_once(
    store: MongoStore, access: Access, database: FakeMongo
) -> None:
    await failed(store, "ro")
    stale = await access["rollouts"].find_one({"_id": "ro"})
    assert stale is not None
    await pausing.release_due(access, 1010.0)
    await store.dequeue_rollout(worker_id="w")
    before = dict(database["rollouts"].documents["ro"])
    await pausing.release_due(access, 1010.0)
    assert database["rollouts"].documents["ro"] == before
