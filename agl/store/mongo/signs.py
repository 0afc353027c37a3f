"""Signs of life: spans, heartbeats and allocated numbers renew the attempt under way, and count its spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pymongo import UpdateOne

from agl.errors import NotFoundError
from agl.store.mongo import changing, updates
from agl.store.mongo.access import Access
from agl.store.mongo.documents import WITHOUT_TASK, Document, is_due
from agl.store.mongo.span_documents import NO_ATTEMPT

IDS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose spans these are: an attempt, a rollout (number 0), or nobody."""

    document: Document | None = None
    attempt_id: str | None = None
    number: int = NO_ATTEMPT

    @property
    def rollout_id(self) -> str | None:
        """The rollout, if any."""
        return None if self.document is None else str(self.document["_id"])

    @property
    def highest(self) -> int:
        """The highest sequence id given out when the document was read."""
        assert self.document is not None
        return int(self.document.get("spans", {}).get(str(self.number), 0))

    @property
    def is_open(self) -> bool:
        """Whether the attempt was under way when the document was read."""
        if self.document is None or self.attempt_id is None:
            return False
        return self.document.get("open", {}).get("attempt_id") == self.attempt_id


Key = tuple[str | None, str | None]
"""Rollout id and attempt id, as a span names them."""


async def find_owners(access: Access, keys: Sequence[Key]) -> dict[Key, Owner]:
    """Return the owner of each key.

    Raises:
        NotFoundError: a rollout or attempt does not exist, or the attempt is of another rollout.
    """
    attempt_ids = list({attempt_id for _, attempt_id in keys if attempt_id is not None})
    rollout_ids = list({rollout_id for rollout_id, attempt_id in keys if rollout_id and attempt_id is None})
    documents = [
        *await _find(access, "attempt_ids", attempt_ids),
        *await _find(access, "_id", rollout_ids),
    ]
    by_rollout = {document["_id"]: document for document in documents}
    numbers = {name: (one, number) for one in documents for name, number in _numbers(one).items()}
    owners: dict[Key, Owner] = {}
    for key in dict.fromkeys(keys):
        rollout_id, attempt_id = key
        if attempt_id is not None:
            found = numbers.get(attempt_id)
            if found is None:
                raise NotFoundError(f"no attempt has the id {attempt_id!r}")
            if rollout_id is not None and found[0]["_id"] != rollout_id:
                raise NotFoundError(f"rollout {rollout_id!r} has no attempt {attempt_id!r}")
            owners[key] = Owner(document=found[0], attempt_id=attempt_id, number=found[1])
        elif rollout_id is not None:
            if rollout_id not in by_rollout:
                raise NotFoundError(f"no rollout has the id {rollout_id!r}")
            owners[key] = Owner(document=by_rollout[rollout_id])
        else:
            owners[key] = Owner()
    return owners


async def count(access: Access, owner: Owner, *, add: int | None = None, to: int | None = None) -> int | None:
    """Move the counter of an attempt's spans; an attempt under way shows life with it.

    Args:
        access: the namespace.
        owner: the attempt as read.
        add: how many numbers to allocate, whatever others allocate meanwhile.
        to: the new highest number, on condition that the counter still stands where it stood.

    Returns:
        The highest number given out afterwards; None when the attempt is not any more as it was read.
    """
    assert owner.document is not None
    counter = f"spans.{owner.number}"
    if owner.is_open:
        now = access.now()
        if is_due(owner.document, now):
            await changing.expire(access, await changing.read(access, str(owner.rollout_id)), now)
            return None
        where, update = updates.alive(owner.document, now=now)
    else:
        where, update = _past(owner), {}
    if add is not None:
        update["$inc"] = update.get("$inc", {}) | {counter: add}
    elif to is not None and to != owner.highest:
        where[counter] = owner.highest or None
        update["$set"] = update.get("$set", {}) | {counter: to}
    if not update:
        return owner.highest
    saved = await access.call(
        lambda: access["rollouts"].find_one_and_update(
            where, update, {"spans": 1, "deadline": 1}, return_document=True
        )
    )
    if saved is None:
        return None
    return int(saved.get("spans", {}).get(str(owner.number), 0))


def _past(owner: Owner) -> Document:
    return {"_id": owner.rollout_id, "past.attempt_id": owner.attempt_id}


async def renew(access: Access, worker_id: str, attempt_ids: Sequence[str]) -> list[str]:
    """Apply a sign of life to the worker's open attempts; return those that are not its own to finish."""
    renewed: set[str] = set()
    for _ in range(changing.MAX_TRIES):
        left = [one for one in attempt_ids if one not in renewed]
        now = access.now()
        writes: list[UpdateOne] = []
        names: list[str] = []
        for document in await _find(access, "attempt_ids", left):
            one = document.get("open")
            if one is None or one["attempt_id"] not in left or one.get("worker_id", worker_id) != worker_id:
                continue
            if is_due(document, now):
                await changing.expire(access, await changing.read(access, document["_id"]), now)
                continue
            writes.append(UpdateOne(*updates.alive(document, now=now)))
            names.append(one["attempt_id"])
        if not writes:
            break
        result = await access.call(lambda: access["rollouts"].bulk_write(writes, ordered=False))  # noqa: B023
        if result.matched_count == len(writes):
            renewed.update(names)
            break
    return [one for one in attempt_ids if one not in renewed]


async def _find(access: Access, field: str, values: Sequence[str]) -> list[Document]:
    found: list[Document] = []
    for start in range(0, len(values), IDS_AT_ONCE):
        where: dict[str, Any] = {field: {"$in": list(values[start : start + IDS_AT_ONCE])}}
        found += await access.call(
            lambda: access["rollouts"].find(where, WITHOUT_TASK).to_list()  # noqa: B023 - awaited here
        )
    return found


def _numbers(document: Document) -> dict[str, int]:
    """Return the number of each attempt of a rollout."""
    numbers = {one["attempt_id"]: one["number"] for one in document.get("past", ())}
    if "open" in document:
        numbers[document["open"]["attempt_id"]] = document["num_attempts"]
    return numbers
