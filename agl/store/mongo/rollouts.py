"""Rollouts in MongoDB: enqueue, start, report, change, cancel. What may happen is decided by ``lifecycle``."""

from __future__ import annotations

from collections.abc import Sequence

from pymongo.errors import DuplicateKeyError

from agl.errors import ConflictError, NotFoundError
from agl.store import lifecycle
from agl.store.mongo import batches, changing, resources, updates
from agl.store.mongo.access import Access
from agl.store.mongo.batches import encoded
from agl.store.mongo.changing import Decision
from agl.store.mongo.documents import (
    Document,
    find_attempt,
    held_of,
    json_text,
    latest_attempt,
    open_attempt,
    pending_document,
    rollout_of,
)
from agl.types import AttemptedRollout, Rollout, RolloutRequest

IDS_AT_ONCE = 1000


async def enqueue(access: Access, requests: Sequence[RolloutRequest]) -> list[Rollout]:
    """Append to the queue, all or none; known ids are answered with the rollout that they named first."""
    await access.deadlines.ready()
    await resources.require(access, {one.resources_id for one in requests if one.resources_id is not None})
    ids = [request.rollout_id or access.new_id("ro") for request in requests]
    given = [request.rollout_id for request in requests if request.rollout_id is not None]
    known = await find_many(access, given)
    new = {
        rollout_id: request
        for rollout_id, request in reversed(list(zip(ids, requests, strict=True)))
        if rollout_id not in known
    }
    made: dict[str, Document] = {}
    if new:
        now = access.now()
        for rollout_id, request in new.items():  # all are checked before a number is used up
            made[rollout_id] = pending_document(request, rollout_id=rollout_id, number=0, now=now)
            encoded(access, made[rollout_id], f"rollout {rollout_id}")
        number = await access.numbers(len(new))
        order = [rollout_id for rollout_id in dict.fromkeys(ids) if rollout_id in made]
        for offset, rollout_id in enumerate(order):
            made[rollout_id] |= {"position": number + offset, "place": number + offset}
        data = [encoded(access, made[rollout_id], f"rollout {rollout_id}") for rollout_id in order]
        await batches.insert(access, data)
        access.arrivals.announce([made[rollout_id].get("run_id") for rollout_id in order])
        if any(
            rollout_id in new for rollout_id in given
        ):  # another caller may have named one of them meanwhile
            known |= await find_many(access, [one for one in given if one in made])
    return [rollout_of(known.get(rollout_id) or made[rollout_id]) for rollout_id in ids]


async def start(access: Access, request: RolloutRequest, worker_id: str | None) -> AttemptedRollout:
    """Make a rollout and its first attempt at once."""
    await access.deadlines.ready()
    if request.resources_id is not None:
        await resources.require(access, {request.resources_id})
    rollout_id = request.rollout_id or access.new_id("ro")
    if request.rollout_id is not None and await find_many(access, [rollout_id]):
        raise _exists(rollout_id)
    encoded(
        access, pending_document(request, rollout_id=rollout_id, number=0, now=0.0), f"rollout {rollout_id}"
    )
    now, number = access.now(), await access.numbers(1)
    pending = pending_document(request, rollout_id=rollout_id, number=number, now=now)
    latest = None if request.resources_id is not None else await resources.latest_id(access, request.run_id)
    held = lifecycle.claimed(
        rollout_of(pending),
        attempt_id=access.new_id("at"),
        worker_id=worker_id,
        resources_id=latest,
        now=now,
    )
    document = updates.started_document(pending, held, position=access.stamp())
    try:
        await access.call(lambda: access["rollouts"].insert_one(document))
    except DuplicateKeyError as error:
        stored = await access.call(lambda: access["rollouts"].find_one({"_id": rollout_id}))
        if stored is None or held_of(stored, held.attempt.attempt_id) is None:
            raise _exists(rollout_id) from error
    access.deadlines.expect(document["deadline"])
    return held


async def start_attempt(access: Access, rollout_id: str, worker_id: str | None) -> AttemptedRollout:
    """Open a new attempt of a queued rollout."""
    await access.deadlines.ready()
    attempt_id = access.new_id("at")
    for _ in range(changing.MAX_TRIES):
        document = await changing.read(access, rollout_id)
        held = held_of(document, attempt_id)
        if held is not None:
            return held  # the call arrived, and its answer did not
        now = access.now()
        latest = None
        if document.get("resources_id") is None:
            latest = await resources.latest_id(access, document.get("run_id"))
        held = lifecycle.claimed(
            rollout_of(document), attempt_id=attempt_id, worker_id=worker_id, resources_id=latest, now=now
        )
        where = {"_id": rollout_id, "rev": document["rev"]}
        update = updates.opening(held, position=access.stamp())
        saved = await access.call(
            lambda: access["rollouts"].find_one_and_update(where, update, return_document=True)  # noqa: B023
        )
        if saved is not None:
            access.deadlines.expect(saved["deadline"])
            return held
    raise changing.contended(rollout_id)


async def report(
    access: Access, rollout_id: str, attempt_id: str, said: lifecycle.AttemptReport
) -> AttemptedRollout:
    """Apply a worker's report to its attempt and the rollout."""
    await access.deadlines.ready()

    def decide(document: Document, now: float) -> Decision | None:
        found = find_attempt(document, attempt_id)
        if found is None:
            raise NotFoundError(f"rollout {rollout_id!r} has no attempt {attempt_id!r}")
        attempt, ended_by = found
        held = AttemptedRollout(rollout=rollout_of(document), attempt=attempt)
        new = lifecycle.reported(held, said, now=now, ended_by=ended_by)
        if new is held:
            return None
        digest = said.digest() if lifecycle.is_terminal(new.attempt.status) else None
        return Decision(rollout=new.rollout, attempt=new.attempt, ended_by=digest)

    document = await changing.change(access, rollout_id, decide)
    held = held_of(document, attempt_id)
    assert held is not None, "the report was applied to the attempt"
    return held


async def change(access: Access, rollout_id: str, wanted: lifecycle.RolloutChange) -> Rollout:
    """Change a rollout as ``lifecycle.changed`` says."""
    await access.deadlines.ready()
    if wanted.metadata is not None:
        json_text(dict(wanted.metadata), f"metadata of rollout {rollout_id}")
    await changing.read(access, rollout_id, {"_id": 1})
    if wanted.resources_id is not None:
        await resources.require(access, {wanted.resources_id})

    def decide(document: Document, now: float) -> Decision | None:
        old, attempt = rollout_of(document), open_attempt(document)
        latest = attempt or latest_attempt(document)
        new, new_attempt = lifecycle.changed(old, latest, wanted, now=now)
        if new == old and new_attempt is latest:
            return None
        return Decision(rollout=new, attempt=None if attempt is None else new_attempt)

    return rollout_of(await changing.change(access, rollout_id, decide))


async def cancel(access: Access, rollout_id: str) -> Rollout:
    """Cancel a rollout and its attempt."""
    await access.deadlines.ready()

    def decide(document: Document, now: float) -> Decision | None:
        old, attempt = rollout_of(document), open_attempt(document)
        new, new_attempt = lifecycle.cancelled(old, attempt, now=now)
        return None if new is old else Decision(rollout=new, attempt=new_attempt)

    return rollout_of(await changing.change(access, rollout_id, decide))


async def find_many(access: Access, rollout_ids: Sequence[str]) -> dict[str, Document]:
    """Return the documents of those rollouts that exist."""
    found: dict[str, Document] = {}
    for start in range(0, len(rollout_ids), IDS_AT_ONCE):
        some = list(rollout_ids[start : start + IDS_AT_ONCE])
        documents = await access.call(
            lambda: access["rollouts"].find({"_id": {"$in": some}}).to_list()  # noqa: B023 - awaited here
        )
        found |= {document["_id"]: document for document in documents}
    return found


def _exists(rollout_id: str) -> ConflictError:
    return ConflictError(f"rollout {rollout_id} exists: use start_attempt to execute it")
