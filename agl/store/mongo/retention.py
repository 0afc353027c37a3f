"""Forgetting, in MongoDB. What is deleted last is what is asked about first, so that a killed deletion can be
repeated.
"""

from __future__ import annotations

from typing import Any

from agl.errors import ConflictError, NotFoundError
from agl.store.base import Retention
from agl.store.mongo import batches, large
from agl.store.mongo.access import Access
from agl.store.mongo.documents import TERMINAL, Document

ROLLOUTS_AT_ONCE = 500


class MongoRetention(Retention):
    """Deletion in MongoDB."""

    _access: Access

    async def delete_run(self, run_id: str) -> dict[str, int]:
        """Delete a run with all that belongs to it."""
        with self._access.visit():
            return await delete_run(self._access, run_id)

    async def delete_spans(self, *, finished_before: float, run_id: str | None = None) -> int:
        """Delete the spans of rollouts that finished before that time, and old ones without a rollout."""
        with self._access.visit():
            return await delete_spans(self._access, finished_before, run_id)


async def delete_run(access: Access, run_id: str) -> dict[str, int]:
    """Delete a run that is over, and count what is gone."""
    await access.deadlines.ready()
    await batches.recover(access, older_than=0.0)
    run = await access.call(lambda: access["runs"].find_one({"_id": run_id}, {"status": 1}))
    known = await access.call(lambda: access["rollouts"].find_one({"run_id": run_id}, {"_id": 1}))
    if run is None and known is None:
        raise NotFoundError(f"no run has the id {run_id!r}")
    await _require_over(access, run_id)
    if run is not None and run["status"] == "running":
        raise ConflictError(f"run {run_id} is running: end it before it is deleted")
    counts = {
        "spans": await _delete(access, "spans", {"run_id": run_id}),
        "metrics": await _delete(access, "metrics", {"run_id": run_id}),
        "resources": await _delete_resources(access, run_id),
    }
    over = {"run_id": run_id, "status": {"$in": TERMINAL}}
    counts["attempts"] = await _count_attempts(access, over)
    counts["rollouts"] = await _delete(access, "rollouts", over)
    await large.forget(access)
    await _require_over(access, run_id)  # somebody may have enqueued meanwhile: then the run stays
    await _delete(access, "runs", {"_id": run_id})
    return counts


async def delete_spans(access: Access, finished_before: float, run_id: str | None) -> int:
    """Delete the spans of terminal rollouts (of the run), and without a run those of no rollout; count them."""
    where: Document = {"finished_at": {"$lt": finished_before}}
    if run_id is not None:
        where["run_id"] = run_id
    gone, after = 0, ""
    while True:
        wanted = where | {"_id": {"$gt": after}}
        some = await access.call(
            lambda: (
                access["rollouts"]
                .find(wanted, {"_id": 1})  # noqa: B023 - awaited here
                .sort([("_id", 1)])
                .limit(ROLLOUTS_AT_ONCE)
                .to_list()
            )
        )
        ids = [document["_id"] for document in some]
        if ids:
            gone += await _delete(access, "spans", {"rollout_id": {"$in": ids}})
        if len(ids) < ROLLOUTS_AT_ONCE:
            break
        after = ids[-1]
    if run_id is None:
        # The position of a span is the time at which it was stored, in microseconds.
        stored_before = {"rollout_id": None, "position": {"$lt": int(finished_before * 1e6)}}
        gone += await _delete(access, "spans", stored_before)
    await large.forget(access)
    return gone


async def _require_over(access: Access, run_id: str) -> None:
    where = {"run_id": run_id, "status": {"$nin": TERMINAL}}
    still_open = await access.call(lambda: access["rollouts"].find_one(where, {"_id": 1}))
    if still_open is not None:
        raise ConflictError(
            f"run {run_id} has open rollouts ({still_open['_id']} is one): cancel them before the run is deleted"
        )


async def _delete_resources(access: Access, run_id: str) -> int:
    """Delete the run's resources that no rollout of another run names."""
    found = await access.call(lambda: access["resources"].find({"run_id": run_id}, {"_id": 1}).to_list())
    ids = [document["_id"] for document in found]
    if not ids:
        return 0
    elsewhere = {"resources_id": {"$in": ids}, "run_id": {"$ne": run_id}}
    named = set(await access.call(lambda: access["rollouts"].distinct("resources_id", elsewhere)))
    return await _delete(access, "resources", {"_id": {"$in": [one for one in ids if one not in named]}})


async def _count_attempts(access: Access, where: Document) -> int:
    pipeline: list[dict[str, Any]] = [
        {"$match": where},
        {"$group": {"_id": None, "attempts": {"$sum": "$num_attempts"}}},
    ]

    async def total() -> list[Document]:
        return await (await access["rollouts"].aggregate(pipeline)).to_list()

    found = await access.call(total)
    return int(found[0]["attempts"]) if found else 0


async def _delete(access: Access, name: str, where: Document) -> int:
    return (await access.call(lambda: access[name].delete_many(where))).deleted_count
