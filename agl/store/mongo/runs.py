"""Runs, metrics and counts in MongoDB."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any, get_args

import orjson
from pymongo import ReplaceOne
from pymongo.errors import BulkWriteError, DuplicateKeyError

from agl.errors import InvalidRequestError, NotFoundError
from agl.store.lifecycle import ATTEMPT_MOVES, ROLLOUT_MOVES
from agl.store.mongo import pausing
from agl.store.mongo.access import Access
from agl.store.mongo.batches import encoded
from agl.store.mongo.documents import OPEN, Document, json_text, present
from agl.types import MetricPoint, Run, RunStatus

_ENDS = ("succeeded", "failed", "timeout", "unresponsive", "cancelled")


async def add(
    access: Access,
    *,
    name: str,
    run_id: str | None,
    command: str,
    settings: Mapping[str, Any],
    git_commit: str | None,
) -> Run:
    """Open a run; a known id is answered with the run that it named first."""
    chosen = run_id or access.new_id("run")
    document = present(
        {
            "_id": chosen,
            "name": name,
            "command": command,
            "settings": json_text(dict(settings), "settings of a run"),
            "git_commit": git_commit,
            "status": "running",
            "created_at": access.now(),
            "position": access.stamp(),
        }
    )
    encoded(access, document, f"run {chosen}")
    try:
        await access.call(lambda: access["runs"].insert_one(document))
    except DuplicateKeyError:
        known = await access.call(lambda: access["runs"].find_one({"_id": chosen}))
        if known is not None:
            return run_of(known)
    return run_of(document)


async def update(access: Access, run_id: str, status: RunStatus) -> Run:
    """Change a run's status; ``running`` opens it again."""
    if status not in get_args(RunStatus):
        raise InvalidRequestError(
            f"{status!r} is not a run's status; known: {', '.join(get_args(RunStatus))}"
        )
    change: dict[str, Any] = {"$set": {"status": status}}
    if status == "running":
        change["$unset"] = {"finished_at": 1}
    else:
        change["$set"]["finished_at"] = access.now()
    document = await access.call(
        lambda: access["runs"].find_one_and_update({"_id": run_id}, change, return_document=True)
    )
    if document is None:
        raise NotFoundError(f"no run has the id {run_id!r}")
    return run_of(document)


async def add_metrics(access: Access, run_id: str, step: int, values: Mapping[str, float]) -> None:
    """Store values of a step; a (name, step) stored again is replaced."""
    writes: list[ReplaceOne[Document]] = []
    for name, value in values.items():
        if not math.isfinite(value):
            raise InvalidRequestError(
                f"metric {name} of step {step} is {value}: only finite numbers are stored"
            )
        document: Document = {
            "_id": f"{len(run_id)}:{run_id}{step}:{name}",
            "run_id": run_id,
            "step": step,
            "name": name,
            "value": float(value),
            "time": access.now(),
        }
        encoded(access, document, f"metric {name}")
        writes.append(ReplaceOne({"_id": document["_id"]}, document, upsert=True))
    if await access.call(lambda: access["runs"].find_one({"_id": run_id}, {"_id": 1})) is None:
        raise NotFoundError(f"no run has the id {run_id!r}: add it before its metrics")
    while writes:
        try:
            await access.call(lambda: access["metrics"].bulk_write(writes, ordered=False))
        except (BulkWriteError, DuplicateKeyError):
            continue  # another call stored one of them for the first time at the same moment
        return


async def statistics(access: Access, run_id: str | None) -> dict[str, Any]:
    """Return counts, of one run or of all."""
    where: Document = {} if run_id is None else {"run_id": run_id}
    sums: Document = {end: {"$sum": f"$ends.{end}"} for end in _ENDS}
    pipeline: list[dict[str, Any]] = [
        {"$match": where},
        {"$group": {"_id": "$status", "rollouts": {"$sum": 1}, **sums}},
    ]

    async def groups() -> list[Document]:
        return await (await access["rollouts"].aggregate(pipeline)).to_list()

    found = await access.call(groups)
    rollouts = dict.fromkeys(ROLLOUT_MOVES, 0) | {one["_id"]: one["rollouts"] for one in found}
    attempts: dict[str, int] = {
        status: rollouts[status] if status in OPEN else sum(one[status] for one in found)
        for status in ATTEMPT_MOVES
    }
    spans, resources, runs, workers, pauses = await asyncio.gather(
        _count(access, "spans", where),
        _count(access, "resources", where),
        _count(access, "runs", {} if run_id is None else {"_id": run_id}),
        _count_workers(access, run_id),
        pausing.count_pausing(access, where),
    )
    return {
        "rollouts": rollouts,
        "pausing": pauses,
        "attempts": attempts,
        "spans": spans,
        "resources": resources,
        "workers": workers,
        "runs": runs,
    }


async def _count(access: Access, name: str, where: Document) -> int:
    """Count documents; all spans from the collection's own counter, which a server killed hard may have a little
    wrong.
    """
    collection = access[name]
    if name == "spans" and not where:
        return await access.call(collection.estimated_document_count)
    return await access.call(lambda: collection.count_documents(where))


async def _count_workers(access: Access, run_id: str | None) -> int:
    if run_id is None:
        return await _count(access, "workers", {})
    return len(await access.call(lambda: access["rollouts"].distinct("workers", {"run_id": run_id})))


def run_of(document: Document) -> Run:
    """Return the run of a document."""
    return Run(
        run_id=document["_id"],
        name=document["name"],
        command=document["command"],
        settings=orjson.loads(document["settings"]),
        git_commit=document.get("git_commit"),
        status=document["status"],
        created_at=document["created_at"],
        finished_at=document.get("finished_at"),
    )


def metric_of(document: Document) -> MetricPoint:
    """Return the point of a document."""
    fields = {name: value for name, value in document.items() if name != "_id"}
    return MetricPoint(**fields)
