"""Lists in MongoDB: filters, orders and pages that continue behind the sort key of the last document shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from agl.errors import InvalidRequestError
from agl.store.mongo import large, resources, runs, workers
from agl.store.mongo.access import Access
from agl.store.mongo.documents import Document, present, rollout_of
from agl.store.mongo.span_documents import span_of, token
from agl.store.paging import cursor_key, cursor_text
from agl.types import (
    MetricPoint,
    MetricQuery,
    NamedResources,
    Page,
    ResourcesQuery,
    Rollout,
    RolloutQuery,
    Run,
    RunQuery,
    Span,
    SpanQuery,
    Worker,
    WorkerQuery,
)
from agl.types.query import ListQuery

T = TypeVar("T")


def order_text(query: ListQuery, keys: Sequence[str]) -> str:
    """Return what a cursor says of the list that it continues."""
    return f"{','.join(keys)} {query.order}"


def behind(query: ListQuery, keys: Sequence[str]) -> Document:
    """Return the filter of what comes behind the query's cursor in the order of one or two keys."""
    if query.cursor is None:
        return {}
    after = cursor_key(query.cursor, order_text(query, keys), len(keys))
    sign = "$gt" if query.order == "asc" else "$lt"
    if len(keys) == 1:
        return {keys[0]: {sign: after[0]}}
    return {"$or": [{keys[0]: {sign: after[0]}}, {keys[0]: after[0], keys[1]: {sign: after[1]}}]}


async def read(
    access: Access, name: str, where: Sequence[Document], *, keys: Sequence[str], order: str, limit: int
) -> list[Document]:
    """Return documents that match all filters."""
    filters = [one for one in where if one]
    direction = 1 if order == "asc" else -1
    wanted: Document = {"$and": filters} if len(filters) > 1 else (filters[0] if filters else {})
    return await access.call(
        lambda: access[name].find(wanted).sort([(key, direction) for key in keys]).limit(limit).to_list()
    )


async def page(
    access: Access,
    name: str,
    query: ListQuery,
    where: Document,
    *,
    keys: Sequence[str],
    make: Callable[[Document], T],
) -> Page[T]:
    """Return a page of a list whose keys are never missing."""
    found, cursor = await documents(access, name, query, where, keys=keys)
    return Page(items=[make(document) for document in found], next_cursor=cursor)


async def documents(
    access: Access, name: str, query: ListQuery, where: Document, *, keys: Sequence[str]
) -> tuple[list[Document], str | None]:
    """Return the documents of a page, and the cursor behind them."""
    found = await read(
        access, name, [where, behind(query, keys)], keys=keys, order=query.order, limit=query.limit + 1
    )
    more, found = len(found) > query.limit, found[: query.limit]
    cursor = cursor_text(order_text(query, keys), [found[-1][key] for key in keys]) if more else None
    return found, cursor


def among(values: Sequence[str] | None) -> Document | None:
    """Return the condition that matches any of the values, None for no condition."""
    return None if values is None else {"$in": list(values)}


async def rollouts(access: Access, query: RolloutQuery) -> Page[Rollout]:
    """List rollouts; where the sort key is missing they come last in both orders."""
    created = present({"$gt": query.created_after, "$lt": query.created_before})
    where = present(
        {
            "_id": among(query.rollout_ids),
            "run_id": query.run_id,
            "status": among(query.status),
            "mode": query.mode,
            "group_id": query.group_id,
            "resources_id": query.resources_id,
            "workers": query.worker_id,
            "created_at": created or None,
        }
    )
    key = query.sort_by
    keys = (key, "position")
    order = order_text(query, keys)
    sign = "$gt" if query.order == "asc" else "$lt"
    after = None if query.cursor is None else cursor_key(query.cursor, order, 2)
    limit = query.limit + 1
    found: list[Document] = []
    if after is None or after[0] is not None:
        found = await read(
            access,
            "rollouts",
            [where, behind(query, keys), {key: {"$gte": -math.inf}}],
            keys=keys,
            order=query.order,
            limit=limit,
        )
    if len(found) < limit and key != "created_at":
        missing: Document = {key: None}
        if after is not None and after[0] is None:
            missing["position"] = {sign: after[1]}
        found += await read(
            access,
            "rollouts",
            [where, missing],
            keys=("position",),
            order=query.order,
            limit=limit - len(found),
        )
    more, found = len(found) > query.limit, found[: query.limit]
    cursor = cursor_text(order, [found[-1].get(key), found[-1]["position"]]) if more else None
    return Page(items=[rollout_of(document) for document in found], next_cursor=cursor)


async def spans(access: Access, query: SpanQuery) -> Page[Span]:
    """List spans: those of a rollout or an attempt by attempt and sequence id, all others as they came."""
    if query.attempt_id == "latest" and query.rollout_id is None:
        raise InvalidRequestError(
            "attempt_id 'latest' names the newest attempt of a rollout: give rollout_id too"
        )
    where = present(
        {
            "rollout_id": query.rollout_id,
            "trace_id": query.trace_id,
            "run_id": query.run_id,
            "name": query.name,
        }
    )
    filters = [where]
    if query.attempt_id is not None:
        owner = await _attempt_filter(access, query.rollout_id, query.attempt_id)
        if owner is None:
            return Page(items=[])
        filters.append(owner)
    if query.name_prefix:
        filters.append({"name": {"$gte": query.name_prefix, **_below(query.name_prefix)}})
    if query.attributes:
        tokens = [token(name, value) for name, value in query.attributes.items()]
        filters.append({"tokens": {"$all": tokens}})
    by_number = query.rollout_id is not None or query.attempt_id is not None
    keys = ("number", "sequence_id") if by_number else ("position", "_id")
    wanted = [one for one in filters if one]
    found, cursor = await documents(access, "spans", query, {"$and": wanted} if wanted else {}, keys=keys)
    contents = await large.contents(access, found)
    return Page(items=[span_of(document, contents) for document in found], next_cursor=cursor)


async def _attempt_filter(access: Access, rollout_id: str | None, attempt_id: str) -> Document | None:
    """Return the filter of an attempt's spans, None when there is no such attempt."""
    if attempt_id == "latest":
        document = await access.call(
            lambda: access["rollouts"].find_one({"_id": rollout_id}, {"num_attempts": 1})
        )
        if document is None or document["num_attempts"] == 0:
            return None
        return {"number": document["num_attempts"]}
    document = await access.call(lambda: access["rollouts"].find_one({"attempt_ids": attempt_id}, {"_id": 1}))
    return None if document is None else {"rollout_id": document["_id"], "attempt_id": attempt_id}


async def metrics(access: Access, query: MetricQuery) -> Page[MetricPoint]:
    """List metric points of a run by step and name."""
    step = None if query.min_step is None else {"$gte": query.min_step}
    where = present({"run_id": query.run_id, "name": among(query.names), "step": step})
    return await page(access, "metrics", query, where, keys=("step", "name"), make=runs.metric_of)


async def run_list(access: Access, query: RunQuery) -> Page[Run]:
    """List runs in the order of their creation."""
    where = present({"name": query.name, "status": among(query.status)})
    return await page(access, "runs", query, where, keys=("position", "_id"), make=runs.run_of)


async def resources_list(access: Access, query: ResourcesQuery) -> Page[NamedResources]:
    """List resources in the order of their versions."""
    where = present({"run_id": query.run_id})
    return await page(access, "resources", query, where, keys=("version",), make=resources.named_resources)


async def worker_list(access: Access, query: WorkerQuery) -> Page[Worker]:
    """List workers in the order of their registration. Their status is not stored: it depends on the time."""
    keys = ("position", "_id")
    descending = query.order == "desc"
    where = behind(query, keys)
    found: list[tuple[Document, Worker]] = []
    while True:
        some = await workers.listed(access, where, descending=descending)
        found += [one for one in some if query.status is None or one[1].status in query.status]
        if len(some) < workers.AT_ONCE or len(found) > query.limit:
            break
        where = workers.behind(some[-1][0], descending=descending)
    more, found = len(found) > query.limit, found[: query.limit]
    cursor = cursor_text(order_text(query, keys), [found[-1][0][key] for key in keys]) if more else None
    return Page(items=[worker for _, worker in found], next_cursor=cursor)


def _below(prefix: str) -> dict[str, Any]:
    """Return the upper bound of all texts that begin with ``prefix``; none where no text comes behind them."""
    for cut in range(len(prefix), 0, -1):
        point = ord(prefix[cut - 1]) + 1
        if point == 0xD800:  # surrogates are no characters
            point = 0xE000
        if point <= 0x10FFFF:
            return {"$lt": prefix[: cut - 1] + chr(point)}
    return {}
