"""Changing a rollout: read its document, let ``lifecycle`` decide, and write on condition that nobody wrote
meanwhile.

Whoever finds the attempt's time up ends it first, so that a late report is refused whether or not the watchdog has
looked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agl.errors import NotFoundError, StoreUnavailableError
from agl.store import lifecycle, watchdog
from agl.store.mongo import updates
from agl.store.mongo.access import Access
from agl.store.mongo.documents import (
    Document,
    is_due,
    open_attempt,
    rollout_of,
)
from agl.types import Attempt, AttemptedRollout, Rollout

MAX_TRIES = 200
"""Times a change is decided anew because others were faster. Each time one of them got through, so this ends long
before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a rollout and its attempt under way become."""

    rollout: Rollout
    attempt: Attempt | None
    ended_by: str | None = None


Decide = Callable[[Document, float], Decision | None]
"""Decides from a document and the time; None leaves it as it is. Raises what the caller shall see."""


async def read(access: Access, rollout_id: str, projection: Document | None = None) -> Document:
    """Return a rollout's document. NotFoundError for an unknown id."""
    document = await access.call(lambda: access["rollouts"].find_one({"_id": rollout_id}, projection))
    if document is None:
        raise NotFoundError(f"no rollout has the id {rollout_id!r}")
    return document


async def change(access: Access, rollout_id: str, decide: Decide) -> Document:
    """Apply a decision to a rollout and return its document afterwards.

    Raises:
        NotFoundError: there is no such rollout.
        StoreUnavailableError: others change it so often that no decision gets through.
    """
    for _ in range(MAX_TRIES):
        document = await read(access, rollout_id)
        now = access.now()
        if is_due(document, now):
            await expire(access, document, now)
            continue
        decision = decide(document, now)
        if decision is None:
            return document
        saved = await save(access, document, decision)
        if saved is not None:
            return saved
    raise contended(rollout_id)


def contended(rollout_id: str) -> StoreUnavailableError:
    """Return the error for a rollout that too many change at once."""
    return StoreUnavailableError(f"rollout {rollout_id} is being changed by too many callers at once")


async def save(
    access: Access, document: Document, decision: Decision, *, only_if: Document | None = None
) -> Document | None:
    """Write a decision; None when the document is not any more as it was read (or not as ``only_if`` says)."""
    old, new = str(document["status"]), decision.rollout
    place = None
    if new.status in lifecycle.QUEUED and old not in lifecycle.QUEUED and new.retry_at is None:
        place = await access.numbers(1)
    update = updates.change(document, new, decision.attempt, place=place, ended_by=decision.ended_by)
    where = {"_id": document["_id"], "rev": document["rev"], **(only_if or {})}
    saved = await access.call(
        lambda: access["rollouts"].find_one_and_update(where, update, return_document=True)
    )
    if saved is None:
        return None
    announce(access, saved, joined=place is not None, ended=not lifecycle.is_terminal(document["status"]))
    return saved


async def expire(access: Access, document: Document, now: float) -> None:
    """End an attempt whose time is up, unless somebody heard of it meanwhile."""
    held = held_open(document)
    ended = watchdog.expired(held, now=now)
    decision = Decision(rollout=ended.rollout, attempt=ended.attempt)
    await save(access, document, decision, only_if={"deadline": {"$lte": now}})


def held_open(document: Document) -> AttemptedRollout:
    """Return a rollout with its attempt under way."""
    attempt = open_attempt(document)
    assert attempt is not None, "an attempt is under way"
    return AttemptedRollout(rollout=rollout_of(document), attempt=attempt)


def announce(access: Access, document: Document, *, joined: bool, ended: bool) -> None:
    """Tell this process's waiters and its watchdog what a write brought about."""
    if joined:
        access.arrivals.announce((document.get("run_id"),))
    if ended and lifecycle.is_terminal(document["status"]):
        access.finishes.announce((document["_id"],))
    if "open" in document:
        access.deadlines.expect(document["deadline"])
    if "retry_at" in document:
        access.deadlines.expect(document["retry_at"])
