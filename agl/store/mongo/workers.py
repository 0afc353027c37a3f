"""Workers in MongoDB: who executes rollouts, and whether they still live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from pymongo.errors import DuplicateKeyError

from agl.errors import NotFoundError
from agl.store.mongo import signs
from agl.store.mongo.access import Access
from agl.store.mongo.documents import Document, json_text
from agl.types import Worker, WorkerStatus

OFFLINE_SECONDS = 60.0
"""A worker silent for longer is shown as offline; the same as the default of ``get_active_workers``."""
AT_ONCE = 1000


async def register(access: Access, worker_id: str, host: str, pid: int) -> Worker:
    """Add a worker, or refresh the document of one that starts anew."""
    now = access.now()
    update: dict[str, Any] = {
        "$set": {"host": host, "pid": pid, "attempts": [], "last_heartbeat_at": now},
        "$min": {"registered_at": now, "position": access.stamp()},  # keeps what an earlier registration set
    }
    while True:
        try:
            document = await access.call(
                lambda: access["workers"].find_one_and_update(
                    {"_id": worker_id}, update, upsert=True, return_document=True
                )
            )
        except DuplicateKeyError:
            continue  # two calls made it at once; now it is there
        assert document is not None, "an upsert finds or makes it"
        busy = await busy_workers(access, [worker_id])
        return worker_of(document, busy, now)


async def heartbeat(
    access: Access, worker_id: str, attempts: Sequence[str], stats: Mapping[str, Any] | None
) -> list[str]:
    """Renew a worker and its attempts; return those that are not its own to finish."""
    text = None if stats is None else json_text(dict(stats), f"stats of worker {worker_id}")
    await access.deadlines.ready()
    if await access.call(lambda: access["workers"].find_one({"_id": worker_id}, {"_id": 1})) is None:
        raise NotFoundError(f"no worker has the id {worker_id!r}: register it first")
    lost = await signs.renew(access, worker_id, attempts) if attempts else []
    gone = set(lost)
    fields: Document = {
        "last_heartbeat_at": access.now(),
        "attempts": [attempt_id for attempt_id in attempts if attempt_id not in gone],
    }
    if text is not None:
        fields["stats"] = text
    await access.call(lambda: access["workers"].update_one({"_id": worker_id}, {"$set": fields}))
    return lost


async def listed(access: Access, where: Document, *, descending: bool) -> list[tuple[Document, Worker]]:
    """Return up to ``AT_ONCE`` workers in the order of their registration, with their documents."""
    direction = -1 if descending else 1
    documents = await access.call(
        lambda: (
            access["workers"]
            .find(where)
            .sort([("position", direction), ("_id", direction)])
            .limit(AT_ONCE)
            .to_list()
        )
    )
    now = access.now()
    busy = await busy_workers(access, [document["_id"] for document in documents])
    return [(document, worker_of(document, busy, now)) for document in documents]


async def active(access: Access, within_seconds: float) -> list[Worker]:
    """Return the workers heard of within that time, in the order of their registration."""
    where: Document = {"last_heartbeat_at": {"$gte": access.now() - within_seconds}}
    found: list[Worker] = []
    while True:
        some = await listed(access, where, descending=False)
        found += [worker for _, worker in some]
        if len(some) < AT_ONCE:
            return found
        where |= behind(some[-1][0], descending=False)


def behind(document: Document, *, descending: bool) -> Document:
    """Return the filter of the workers that come after this one."""
    return behind_key(document["position"], document["_id"], descending=descending)


def behind_key(position: int, worker_id: str, *, descending: bool) -> Document:
    """Return the filter of the workers that come after the one with this key."""
    sign = "$lt" if descending else "$gt"
    return {"$or": [{"position": {sign: position}}, {"position": position, "_id": {sign: worker_id}}]}


async def busy_workers(access: Access, worker_ids: Sequence[str]) -> set[str]:
    """Return those of the workers that have an attempt under way."""
    wanted = {"open.worker_id": {"$in": list(worker_ids)}}
    return set(await access.call(lambda: access["rollouts"].distinct("open.worker_id", wanted)))


def worker_of(document: Document, busy: set[str], now: float) -> Worker:
    """Return the worker of a document."""
    worker_id, heard = document["_id"], document["last_heartbeat_at"]
    status: WorkerStatus = "busy" if worker_id in busy else "idle"
    return Worker(
        worker_id=worker_id,
        host=document["host"],
        pid=document["pid"],
        status="offline" if heard < now - OFFLINE_SECONDS else status,
        attempts=tuple(document["attempts"]),
        registered_at=document["registered_at"],
        last_heartbeat_at=heard,
        stats=orjson.loads(document.get("stats", "{}")),
    )
