from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

from fake_mongo import FakeClient, FakeMongo
from pymongo.errors import OperationFailure

from agl.store.mongo import MongoStore
from agl.store.mongo.following import EVENTS, announce, follow
from agl.store.waiting import Arrivals, Finishes
from agl.types import RolloutRequest


def inserted(rollout_id: str, **fields: Any) -> dict[str, Any]:
    return {"operationType": "insert", "documentKey": {"_id": rollout_id}, "fullDocument": fields}


def updated(rollout_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "operationType": "update",
        "documentKey": {"_id": rollout_id},
        "updateDescription": {"updatedFields": fields},
    }


class Stream:
    """A change stream: the events given, and then what the test adds."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        for event in events:
            self.events.put_nowait(event)

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        while (event := await self.events.get()) is not None:
            yield event


async def told(*events: dict[str, Any]) -> tuple[dict[str | None, bool], bool]:
    """Return whose wait for work ended, and whether a wait for the end of ``ro`` did."""
    arrivals, finishes = Arrivals(), Finishes()
    waits = {run_id: arrivals.join(run_id) for run_id in (None, "r", "s")}
    end = finishes.join(["ro"])
    stream = Stream(*events)
    stream.events.put_nowait(None)
    await announce(stream, arrivals, finishes)
    return {run_id: wait.done() for run_id, wait in waits.items()}, end.done.done()


async def test_a_new_rollout_wakes_one_waiter_of_its_run() -> None:
    assert await told(inserted("ro", run_id="r", queued=True)) == (
        {None: False, "r": True, "s": False},
        False,
    )
    assert await told(inserted("ro", queued=True)) == ({None: True, "r": False, "s": False}, False)


async def test_a_rollout_started_past_the_queue_wakes_nobody() -> None:
    assert await told(inserted("ro", run_id="r")) == ({None: False, "r": False, "s": False}, False)


async def test_a_requeued_rollout_wakes_a_waiter_of_each_run() -> None:
    event = updated("ro", status="requeuing", queued=True)
    assert await told(event) == ({None: True, "r": True, "s": True}, False)


async def test_an_end_ends_the_waits_for_it() -> None:
    for status in ("succeeded", "failed", "cancelled"):
        assert (await told(updated("ro", status=status)))[1]
    assert not (await told(updated("ro", status="running"), updated("other", status="failed")))[1]


async def test_a_waiting_claim_is_ended_by_the_stream_of_a_replica_set(database: FakeMongo) -> None:
    stream = Stream()
    asked: list[Any] = []

    async def watch(pipeline: Any) -> Stream:
        asked.append(pipeline)
        return stream

    database["rollouts"].watch = watch  # type: ignore[attr-defined]
    client = FakeClient(database, {"setName": "rs0"})
    async with MongoStore("mongodb://h", connect=client) as store:  # pyright: ignore[reportArgumentType]
        claim = asyncio.create_task(store.dequeue_rollout(worker_id="w", wait_seconds=60))
        await asyncio.sleep(0)
        await MongoStore.enqueue_rollout(store, RolloutRequest(task="t"))
        held = await asyncio.wait_for(claim, 10)
        assert held is not None
        end = asyncio.create_task(store.wait_for_rollouts([held.rollout.rollout_id]))
        for _ in range(10):  # until it waits
            await asyncio.sleep(0)
        database["rollouts"].documents[held.rollout.rollout_id] |= {"status": "cancelled", "finished_at": 1.0}
        stream.events.put_nowait(updated(held.rollout.rollout_id, status="cancelled"))
        assert [rollout.status for rollout in await asyncio.wait_for(end, 10)] == ["cancelled"]
    assert asked == [EVENTS]


async def test_a_server_without_streams_is_only_a_warning(database: FakeMongo, caplog: Any) -> None:
    async def watch(pipeline: Any) -> Stream:
        raise OperationFailure("only supported on replica sets", 40573)

    database["rollouts"].watch = watch  # type: ignore[attr-defined]
    async with MongoStore("mongodb://h", connect=FakeClient(database)) as store:  # pyright: ignore[reportArgumentType]
        await follow(store._access)
    assert "gives no change stream" in caplog.text
