"""What each process does beside its callers: the watchdog, the end of pauses, news of what others wrote, the clock,
unfinished batches.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from agl.errors import StoreError
from agl.store import lifecycle
from agl.store.mongo import batches, changing, following, pausing
from agl.store.mongo.access import Access
from agl.store.mongo.documents import NEVER, OPEN, TERMINAL, config_from_text, point
from agl.store.watchdog import SWEEP_LIMIT

log = logging.getLogger(__name__)
LOOK_SECONDS = 2.0
"""Longest time until a deadline that another process set is known here."""
POLL_SECONDS = 0.05
"""Pause between two looks for what other processes wrote, while somebody here waits."""
FOLLOWED_POLL_SECONDS = 2.0
"""The same while a change stream tells of it."""
CLOCK_SECONDS = 60.0
LISTENING_SECONDS = 5.0
"""A process that showed no life for so long does not listen to workers any more."""
IDS_AT_ONCE = 1000


async def look(access: Access, now: float) -> float:
    """End every attempt that is overdue, most overdue first, and let rollouts whose pause is over join the queue.

    Returns:
        When to look next.
    """
    rollouts = access["rollouts"]
    while True:
        due = await access.call(
            lambda: (
                rollouts.find({"status": {"$in": OPEN}, "deadline": {"$lte": now}})
                .sort([("deadline", 1), ("open.position", 1)])
                .limit(SWEEP_LIMIT)
                .to_list()
            )
        )
        for document in due:
            await changing.expire(access, document, now)
        if len(due) < SWEEP_LIMIT:
            break
    await pausing.release_due(access, now)
    following_one = await access.call(
        lambda: rollouts.find_one(
            {"status": {"$in": OPEN}, "deadline": {"$lt": NEVER}}, {"deadline": 1}, sort=[("deadline", 1)]
        )
    )
    deadline = NEVER if following_one is None else float(following_one["deadline"])
    return min(deadline, await pausing.next_release(access))


async def grant_grace(access: Access, server_id: str) -> None:
    """Renew the leases of open attempts if no other process listened: silence counts only while somebody does."""
    now = access.now()
    listening = await access.call(
        lambda: access["store"].find_one(
            {"kind": "server", "seen_at": {"$gt": now - LISTENING_SECONDS}, "_id": {"$ne": server_id}}
        )
    )
    if listening is not None:
        return
    silent = {"status": {"$in": OPEN}, "lease": {"$lt": NEVER}}
    fields = {"config": 1, "open": 1}
    for document in await access.call(lambda: access["rollouts"].find(silent, fields).to_list()):
        config = config_from_text(document["config"])
        lease = lifecycle.lease_end(config, now)
        due = lifecycle.next_deadline(config, started_at=document["open"]["started_at"], lease=lease)
        where = {
            "_id": document["_id"],
            "open.attempt_id": document["open"]["attempt_id"],
            "config": document["config"],
        }
        renewed = {"$max": {"lease": point(lease), "deadline": point(due)}}
        await access.call(lambda: access["rollouts"].update_one(where, renewed))  # noqa: B023 - awaited here


async def show_life(access: Access, server_id: str) -> None:
    """Say that this process listens."""
    seen = {"$set": {"kind": "server", "seen_at": access.now()}}
    await access.call(lambda: access["store"].update_one({"_id": server_id}, seen, upsert=True))


async def leave(access: Access, server_id: str) -> None:
    """Say that this process does not listen any more, and forget those that died."""
    old = {"kind": "server", "seen_at": {"$lt": access.now() - 100 * LISTENING_SECONDS}}
    await access.call(lambda: access["store"].delete_many({"$or": [{"_id": server_id}, old]}))


async def keep(access: Access, server_id: str) -> None:
    """Look after the namespace until cancelled. What fails is tried again with the next round."""
    loop = asyncio.get_running_loop()
    measured = looked = loop.time()
    while True:
        await access.deadlines.pause(max(looked + LOOK_SECONDS - loop.time(), 0.0))
        try:
            if loop.time() < looked + LOOK_SECONDS:
                await access.deadlines.ready()
                continue
            looked = loop.time()
            await access.deadlines.look()
            await show_life(access, server_id)
            await batches.recover(access, older_than=batches.ABANDONED_SECONDS)
            if loop.time() - measured > CLOCK_SECONDS:
                measured = loop.time()
                await access.greet()
        except StoreError as error:
            log.warning("the store %s could not be looked after: %s", access.location, error)
            await asyncio.sleep(LOOK_SECONDS)


async def listen(access: Access) -> None:
    """Tell waiting callers what other processes wrote, until cancelled: by a change stream if there are any, and by
    looking now and then.
    """
    stream: asyncio.Task[Any] | None = None
    if access.has_change_streams:
        stream = asyncio.get_running_loop().create_task(following.follow(access))
    try:
        while True:
            followed = stream is not None and not stream.done()
            await asyncio.sleep(FOLLOWED_POLL_SECONDS if followed else POLL_SECONDS)
            try:
                await poll(access)
            except StoreError as error:
                log.warning("nobody can be told of news in %s: %s", access.location, error)
    finally:
        if stream is not None:
            stream.cancel()
            await asyncio.gather(stream, return_exceptions=True)


async def poll(access: Access) -> None:
    """Look for what waiting callers wait for: rollouts in the queue, and rollouts that are terminal."""
    runs = access.arrivals.waiting()
    for run_id, count in runs.items():
        where: dict[str, Any] = {"queued": True} if run_id is None else {"queued": True, "run_id": run_id}
        found = await access.call(
            lambda: access["rollouts"].find(where, {"_id": 1}).limit(count).to_list()  # noqa: B023
        )
        access.arrivals.announce([run_id] * len(found))
    ids = access.finishes.waiting()
    for start in range(0, len(ids), IDS_AT_ONCE):
        some = ids[start : start + IDS_AT_ONCE]
        over = await access.call(
            lambda: (
                access["rollouts"]
                .find({"_id": {"$in": some}, "status": {"$in": TERMINAL}}, {"_id": 1})  # noqa: B023
                .to_list()
            )
        )
        access.finishes.announce([document["_id"] for document in over])
