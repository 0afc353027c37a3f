from __future__ import annotations

import asyncio

import pytest
from fake_mongo import FakeMongo

from agl.errors import StoreUnavailableError
from agl.store.mongo import MongoStore
from agl.types import AttemptQuery, RolloutRequest


async def test_a_claim_is_carried_to_its_end_and_undone_when_the_caller_has_left(
    store: MongoStore, database: FakeMongo
) -> None:
    await store.enqueue_many_rollouts([RolloutRequest(task=number) for number in range(3)])
    reached, go_on = asyncio.Event(), asyncio.Event()
    claim_first = database["rollouts"].find_one_and_update

    async def slow(*args: object, **options: object) -> object:
        document = await claim_first(*args, **options)  # pyright: ignore[reportArgumentType]
        reached.set()
        await go_on.wait()
        return document

    database["rollouts"].find_one_and_update = slow  # type: ignore[assignment]
    dequeue = asyncio.create_task(store.dequeue_many_rollouts(worker_id="w", limit=2))
    await reached.wait()
    dequeue.cancel()
    await asyncio.gather(dequeue, return_exceptions=True)
    database["rollouts"].find_one_and_update = claim_first  # type: ignore[method-assign]
    go_on.set()
    while store._access._errands:
        await asyncio.wait(store._access._errands)
    assert (await store.query_attempts(AttemptQuery())).items == []
    claimed = await store.dequeue_many_rollouts(worker_id="w", limit=3)
    assert [held.rollout.task for held in claimed] == [0, 1, 2]


async def test_a_wait_for_no_rollouts_is_over_at_once(store: MongoStore) -> None:
    assert await store.wait_for_rollouts([]) == []


async def test_waiters_go_when_the_store_closes(store: MongoStore) -> None:
    await store.enqueue_rollout(RolloutRequest(task="t", rollout_id="ro", run_id="other"))
    claim = asyncio.create_task(store.dequeue_rollout(worker_id="w", run_id="mine", wait_seconds=60))
    end = asyncio.create_task(store.wait_for_rollouts(["ro"]))
    for _ in range(10):  # until they wait
        await asyncio.sleep(0)
    await asyncio.wait_for(store.close(), 10)
    assert await claim is None
    assert await end == []
    with pytest.raises(StoreUnavailableError):
        await store.dequeue_rollout(worker_id="w")
