from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fake_mongo import FakeMongo

from agl.store.mongo import MongoStore
from agl.store.mongo.workers import AT_ONCE
from agl.types import RolloutRequest


async def test_a_worker_registered_by_two_processes_is_one(
    store: MongoStore, another: Callable[[], MongoStore]
) -> None:
    async with another() as other:
        await asyncio.gather(*(one.register_worker("w", pid=pid) for pid, one in enumerate((store, other))))
    assert len((await store.query_workers()).items) == 1


async def test_registering_again_keeps_place_and_first_time(store: MongoStore, clock: Any) -> None:
    await store.register_worker("w1")
    await store.register_worker("w2")
    clock.now += 5.0
    again = await store.register_worker("w1", host="h")
    assert (again.registered_at, again.last_heartbeat_at, again.host) == (1000.0, 1005.0, "h")
    assert [one.worker_id for one in (await store.query_workers()).items] == ["w1", "w2"]


async def test_the_active_are_read_in_portions(store: MongoStore, database: FakeMongo) -> None:
    await store.register_worker("w")
    documents = database["workers"].documents
    for number in range(AT_ONCE + 1):  # one more than a portion, all registered at one moment
        documents[f"w{number:04}"] = documents["w"] | {"_id": f"w{number:04}"}
    del documents["w"]
    last = f"w{AT_ONCE:04}"
    await store.start_rollout(RolloutRequest(task="t"), worker_id=last)
    active = await store.get_active_workers()
    assert [one.worker_id for one in active] == sorted(documents)
    assert [one.worker_id for one in active if one.status == "busy"] == [last]
