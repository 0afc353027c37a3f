"""Claims: hand rollouts out, answer a repeated claim, take one back.

A claim of one rollout is one ``find_one_and_update``: MongoDB finds the first of the queue and makes attempt and
lease of it in the same step, so that no process can be killed in between. The caller chose the attempt's id, so a
call whose answer was lost is not repeated blindly but looked up. Only the resources of a rollout that named none are
pinned by a second write; a process killed before it leaves an attempt that nobody received, and the claim's repeat or
the next attempt pins them.
"""

from __future__ import annotations

from typing import Any

from pymongo.errors import DuplicateKeyError

from agl.store.mongo import resources, updates
from agl.store.mongo.access import Access
from agl.store.mongo.changing import announce
from agl.store.mongo.documents import (
    OPEN,
    Document,
    held_of,
    placed_attempts,
    slot_prefix,
)
from agl.types import AttemptedRollout

_QUEUE_ORDER = [("priority", -1), ("place", 1)]
ASKING_SECONDS = 1.0
MAX_ASKING = 10_000
_BEHIND_SLOTS = "$"
"""The character behind ``#``, where the slots of a request end."""


async def claim(
    access: Access, *, worker_id: str, limit: int, request_id: str | None, run_id: str | None
) -> list[AttemptedRollout]:
    """Hand out up to ``limit`` queued rollouts; a known ``request_id`` of the worker answers its first claim."""
    await access.deadlines.ready()
    if request_id is not None:
        claimed = await claimed_by(access, worker_id, request_id)
        if claimed:
            return claimed
    await _note_asking(access, worker_id)
    held: list[AttemptedRollout] = []
    latest: dict[str | None, str | None] = {}
    while len(held) < limit:
        slot = None if request_id is None else f"{slot_prefix(worker_id, request_id)}{len(held)}"
        attempt_id = access.new_id("at")
        try:
            document = await _claim_one(
                access, attempt_id=attempt_id, worker_id=worker_id, slot=slot, run_id=run_id
            )
        except DuplicateKeyError:  # the same request is being answered elsewhere, or was
            return await claimed_by(access, worker_id, str(request_id))
        if document is None:
            break
        document = await _pinned(access, document, latest)
        one = held_of(document, attempt_id)
        assert one is not None, "the claim made the attempt"
        held.append(one)
    return held


async def _note_asking(access: Access, worker_id: str) -> None:
    """Asking for work is a sign of the worker's life, which is written once a second at most."""
    now = access.now()
    if access.asked.get(worker_id, -ASKING_SECONDS) > now - ASKING_SECONDS:
        return
    heard = {"$max": {"last_heartbeat_at": now}}
    await access.call(lambda: access["workers"].update_one({"_id": worker_id}, heard))
    access.asked[worker_id] = now
    if len(access.asked) > MAX_ASKING:
        access.asked = {name: then for name, then in access.asked.items() if then > now - ASKING_SECONDS}


async def claimed_by(access: Access, worker_id: str, request_id: str) -> list[AttemptedRollout]:
    """Return what a dequeue of this worker was given, as it stands now, in the order in which it was given."""
    found: list[tuple[int, AttemptedRollout]] = []
    for document in await _claimed_documents(access, worker_id, request_id):
        if "open" in document and document["status"] == "preparing":
            document = await _pinned(access, document, {})
        prefix = slot_prefix(worker_id, request_id)
        for position, attempt in placed_attempts(document):
            if _slot_of(document, attempt.attempt_id).startswith(prefix):
                held = held_of(document, attempt.attempt_id)
                assert held is not None
                found.append((position, held))
    return [held for _, held in sorted(found, key=lambda one: one[0])]


async def undo(access: Access, worker_id: str, request_id: str) -> list[str]:
    """Take a dequeue back; return the rollouts that went back."""
    back: list[tuple[int, str]] = []
    prefix = slot_prefix(worker_id, request_id)
    for document in await _claimed_documents(access, worker_id, request_id):
        for position, attempt in placed_attempts(document):
            if _slot_of(document, attempt.attempt_id).startswith(prefix) and await give_back(
                access, attempt.attempt_id
            ):
                back.append((position, document["_id"]))
    return [rollout_id for _, rollout_id in sorted(back)]


async def give_back(access: Access, attempt_id: str) -> bool:
    """Make a claim undone unless its attempt shows a sign of life; the rollout stands in the queue where it stood."""
    while True:
        document = await access.call(lambda: access["rollouts"].find_one({"attempt_ids": attempt_id}))
        if document is None or document.get("open", {}).get("attempt_id") != attempt_id:
            return False
        counter = f"spans.{document['num_attempts']}"
        if document["status"] != "preparing" or str(document["num_attempts"]) in document.get("spans", {}):
            return False
        where = {
            "_id": document["_id"],
            "rev": document["rev"],
            "open.attempt_id": attempt_id,
            counter: {"$exists": False},
        }
        update = updates.returning(document)
        gone = await access.call(
            lambda: access["rollouts"].find_one_and_update(where, update, return_document=True)  # noqa: B023
        )
        if gone is not None:
            announce(access, gone, joined=True, ended=False)
            return True


async def _claim_one(
    access: Access, *, attempt_id: str, worker_id: str, slot: str | None, run_id: str | None
) -> Document | None:
    rollouts = access["rollouts"]
    where: dict[str, Any] = {"queued": True} if run_id is None else {"queued": True, "run_id": run_id}
    tried = False

    async def claim_first() -> Document | None:
        nonlocal tried
        if tried:
            mine = await rollouts.find_one({"attempt_ids": attempt_id})
            if mine is not None:
                return mine
        tried = True
        update = updates.claiming(
            attempt_id=attempt_id,
            worker_id=worker_id,
            slot=slot,
            position=access.stamp(),
            now=access.now(),
        )
        return await rollouts.find_one_and_update(where, update, sort=_QUEUE_ORDER, return_document=True)

    document = await access.call(claim_first)
    if document is not None:
        access.deadlines.expect(document["deadline"])
    return document


async def _pinned(access: Access, document: Document, latest: dict[str | None, str | None]) -> Document:
    """Give a claimed rollout that names no resources the latest of its run, else the latest of all."""
    if document.get("resources_id") is not None:
        return document
    run_id = document.get("run_id")
    if run_id not in latest:
        latest[run_id] = await resources.latest_id(access, run_id)
    if latest[run_id] is None:
        return document
    where = {
        "_id": document["_id"],
        "open.attempt_id": document["open"]["attempt_id"],
        "status": {"$in": OPEN},
        "resources_id": None,
    }
    pin = {"$set": {"resources_id": latest[run_id], "open.pinned": True}, "$inc": {"rev": 1}}
    pinned = await access.call(
        lambda: access["rollouts"].find_one_and_update(where, pin, return_document=True)
    )
    if pinned is not None:
        return pinned
    again = await access.call(lambda: access["rollouts"].find_one({"_id": document["_id"]}))
    return document if again is None else again


async def _claimed_documents(access: Access, worker_id: str, request_id: str) -> list[Document]:
    prefix = slot_prefix(worker_id, request_id)
    slots = {"$elemMatch": {"$gte": prefix, "$lt": prefix[:-1] + _BEHIND_SLOTS}}
    return await access.call(lambda: access["rollouts"].find({"slots": slots}).to_list())


def _slot_of(document: Document, attempt_id: str) -> str:
    for one in (*document.get("past", ()), document.get("open", {})):
        if one.get("attempt_id") == attempt_id:
            return str(one.get("slot", ""))
    return ""
