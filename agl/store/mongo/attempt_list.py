"""The list of attempts: they are inside the documents of their rollouts, and are listed in the order of their start.

A rollout's first and last attempts (``first``, ``last``) are indexed. Behind a cursor, in ascending order, come the
attempts of two kinds of rollouts: those that began before it and were tried again behind it (few: they were in
progress then), which are all read; and those that began behind it, which are read in the order of their first
attempts only until as many attempts as the page needs began before the next of them. Descending, first and last
change their parts.
"""

from __future__ import annotations

import bisect

from agl.store.mongo.access import Access
from agl.store.mongo.documents import Document, placed_attempts, present
from agl.store.mongo.queries import among, order_text, read
from agl.store.paging import cursor_key, cursor_text
from agl.types import Attempt, AttemptQuery, Page

KEYS = ("position", "attempt_id")
MOST_AT_ONCE = 1000
Key = tuple[int, str]


async def attempts(access: Access, query: AttemptQuery) -> Page[Attempt]:
    """List attempts in the order of their start."""
    descending = query.order == "desc"
    sign = -1 if descending else 1
    after: Key | None = None
    if query.cursor is not None:
        position, attempt_id = cursor_key(query.cursor, order_text(query, KEYS), 2)
        after = (sign * int(position), str(attempt_id))
    found = await _collect(access, query, after, sign)
    more, found = len(found) > query.limit, found[: query.limit]
    cursor = None
    if more:
        (position, attempt_id), _ = found[-1]
        cursor = cursor_text(order_text(query, KEYS), (sign * position, attempt_id))
    return Page(items=[attempt for _, attempt in found], next_cursor=cursor)


async def _collect(
    access: Access, query: AttemptQuery, after: Key | None, sign: int
) -> list[tuple[Key, Attempt]]:
    """Return the first ``limit + 1`` attempts behind the cursor, with their keys; descending positions are negated."""
    near, far = ("first", "last") if sign > 0 else ("last", "first")
    wanted = query.limit + 1
    kept: list[tuple[Key, Attempt]] = []

    def take(document: Document) -> None:
        for position, attempt in placed_attempts(document):
            key = (sign * position, attempt.attempt_id)
            if _matches(query, attempt) and (after is None or key > after):
                bisect.insort(kept, (key, attempt), key=lambda one: one[0])
        del kept[wanted:]

    where = _filter(query)
    if after is not None:
        begun, behind = ("$lt", "$gte") if sign > 0 else ("$gt", "$lte")
        position = sign * after[0]
        straddling = {"$and": [where, {near: {begun: position}}, {far: {behind: position}}]}
        for document in await access.call(lambda: access["rollouts"].find(straddling).to_list()):
            take(document)
        where = {"$and": [where, {near: {behind: position}}]}
    chunk = min(wanted, MOST_AT_ONCE)
    seen: Document = {}
    while True:
        documents = await read(
            access, "rollouts", [where, seen], keys=(near, "_id"), order=query.order, limit=chunk
        )
        for document in documents:
            if len(kept) == wanted and kept[-1][0][0] < sign * int(document[near]):
                return kept
            take(document)
        if len(documents) < chunk:
            break
        last, side = documents[-1], "$gt" if sign > 0 else "$lt"
        seen = {"$or": [{near: {side: last[near]}}, {near: last[near], "_id": {side: last["_id"]}}]}
    return kept


def _filter(query: AttemptQuery) -> Document:
    where = present({"_id": query.rollout_id, "workers": query.worker_id})
    if query.status is not None:
        statuses = among(query.status)
        where["$or"] = [{"status": statuses}, {"past.status": statuses}]
    return where | {"first": {"$exists": True}}


def _matches(query: AttemptQuery, attempt: Attempt) -> bool:
    return (query.worker_id is None or attempt.worker_id == query.worker_id) and (
        query.status is None or attempt.status in query.status
    )
