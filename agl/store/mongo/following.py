"""Change streams: MongoDB tells what any process wrote, where it is a replica set or a sharded cluster."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, Mapping
from typing import Any

from pymongo.errors import PyMongoError

from agl.store import lifecycle
from agl.store.mongo.access import Access
from agl.store.waiting import Arrivals, Finishes

log = logging.getLogger(__name__)
EVENTS: list[dict[str, Any]] = [
    {"$match": {"operationType": {"$in": ["insert", "update"]}}},
    {
        "$project": {
            "operationType": 1,
            "documentKey": 1,
            "fullDocument.run_id": 1,
            "fullDocument.queued": 1,
            "updateDescription.updatedFields.status": 1,
            "updateDescription.updatedFields.queued": 1,
        }
    },
]
"""Of each change only what waiters need: tasks and attempts are not sent."""


async def follow(access: Access) -> None:
    """Announce what the stream tells, until it ends or fails; the poll goes on without it."""
    try:
        async with await access["rollouts"].watch(EVENTS) as stream:
            await announce(stream, access.arrivals, access.finishes)
    except PyMongoError as error:
        log.warning(
            "%s gives no change stream (%s): waits are served by looking",
            access.location,
            type(error).__name__,
        )


async def announce(events: AsyncIterable[Mapping[str, Any]], arrivals: Arrivals, finishes: Finishes) -> None:
    """Tell waiters of each event. An update does not say its run: it wakes one waiter of each run."""
    async for event in events:
        if event["operationType"] == "insert":
            made = event.get("fullDocument", {})
            if made.get("queued"):
                arrivals.announce((made.get("run_id"),))
            continue
        changed = event.get("updateDescription", {}).get("updatedFields", {})
        if changed.get("queued"):
            arrivals.announce(list(arrivals.waiting()))
        status = changed.get("status")
        if status is not None and lifecycle.is_terminal(status):
            finishes.announce((event["documentKey"]["_id"],))
