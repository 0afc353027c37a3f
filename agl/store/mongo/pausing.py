"""Rollouts that pause before their next attempt: those whose time has come join the queue."""

from __future__ import annotations

from pymongo import UpdateOne

from agl.store.mongo import updates
from agl.store.mongo.access import Access
from agl.store.mongo.documents import NEVER, Document
from agl.store.watchdog import SWEEP_LIMIT


async def release_due(access: Access, now: float) -> None:
    """Let the rollouts whose pause is over join the queue's end, the most overdue first.

    Several processes may find the same rollout; the condition of the write lets one of them take it along.
    """
    rollouts = access["rollouts"]
    while True:
        due = await access.call(
            lambda: (
                rollouts.find({"retry_at": {"$lte": now}}, {"retry_at": 1, "run_id": 1})
                .sort([("retry_at", 1), ("position", 1)])
                .limit(SWEEP_LIMIT)
                .to_list()
            )
        )
        if due:
            first = await access.numbers(len(due))
            writes = [
                UpdateOne({"_id": one["_id"], "retry_at": one["retry_at"]}, updates.joining(first + offset))
                for offset, one in enumerate(due)
            ]
            await access.call(lambda: rollouts.bulk_write(writes, ordered=False))  # noqa: B023 - awaited here
            access.arrivals.announce([one.get("run_id") for one in due])
        if len(due) < SWEEP_LIMIT:
            return


async def next_release(access: Access) -> float:
    """Return when the next pause ends; NEVER when nothing pauses."""
    waiting: Document = {"retry_at": {"$lt": NEVER}}
    found = await access.call(
        lambda: access["rollouts"].find_one(waiting, {"retry_at": 1}, sort=[("retry_at", 1)])
    )
    return NEVER if found is None else float(found["retry_at"])


async def count_pausing(access: Access, where: Document) -> int:
    """Return how many of the rollouts pause."""
    pausing: Document = {**where, "retry_at": {"$lt": NEVER}}
    return await access.call(lambda: access["rollouts"].count_documents(pausing))
