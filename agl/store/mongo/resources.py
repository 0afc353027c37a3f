"""Resources in MongoDB: numbered, immutable versions. A unique index on the number lets one of two writers have it."""

from __future__ import annotations

from collections.abc import Collection as Values
from collections.abc import Mapping
from typing import Any

import orjson
from pymongo.errors import DuplicateKeyError

from agl.errors import InvalidRequestError, NotFoundError
from agl.store.mongo.access import Access
from agl.store.mongo.batches import encoded
from agl.store.mongo.documents import Document, json_text, present
from agl.types import NamedResources, Resource

_NEWEST = [("version", -1)]


async def add(
    access: Access, given: Mapping[str, Resource], *, run_id: str | None, resources_id: str | None
) -> NamedResources:
    """Store a new version; a known id is answered with the version that it named first."""
    if resources_id is not None:
        known = await find(access, resources_id)
        if known is not None:
            return known
    chosen = resources_id or access.new_id("rs")
    while True:
        newest = await access.call(lambda: access["resources"].find_one({}, {"version": 1}, sort=_NEWEST))
        version = 1 if newest is None else int(newest["version"]) + 1
        document = _document(access, given, resources_id=chosen, version=version, run_id=run_id)
        try:
            await access.call(lambda: access["resources"].insert_one(document))  # noqa: B023 - awaited here
        except DuplicateKeyError:  # of the id: it is known; of the version: the next one
            known = await find(access, chosen)
            if known is not None:
                return known
            continue
        return named_resources(document)


def _document(
    access: Access,
    given: Mapping[str, Resource],
    *,
    resources_id: str,
    version: int,
    run_id: str | None,
) -> Document:
    values: dict[str, Any] = {
        "resources_id": resources_id,
        "version": version,
        "run_id": run_id,
        "resources": dict(given),
        "created_at": access.now(),
    }
    try:
        named = NamedResources(**values)
    except ValueError as error:
        raise InvalidRequestError(f"resources of unknown shape: {error}") from error
    document = present(
        {
            "_id": resources_id,
            "version": version,
            "run_id": run_id,
            "resources": json_text(named.model_dump()["resources"], "a resource"),
            "created_at": named.created_at,
        }
    )
    encoded(access, document, f"resources {resources_id}")
    return document


async def find(access: Access, resources_id: str) -> NamedResources | None:
    """Return that version, None for an unknown id."""
    document = await access.call(lambda: access["resources"].find_one({"_id": resources_id}))
    return None if document is None else named_resources(document)


async def get(access: Access, resources_id: str) -> NamedResources:
    """Return that version. NotFoundError for an unknown id."""
    named = await find(access, resources_id)
    if named is None:
        raise _missing(resources_id)
    return named


async def latest(access: Access, run_id: str | None) -> NamedResources | None:
    """Return the newest version, of the run if one is given."""
    where = {} if run_id is None else {"run_id": run_id}
    document = await access.call(lambda: access["resources"].find_one(where, sort=_NEWEST))
    return None if document is None else named_resources(document)


async def latest_id(access: Access, run_id: str | None) -> str | None:
    """Return what a rollout without resources gets: the newest version of its run, else the newest of all."""
    fields = {"run_id": 1}
    newest = await access.call(lambda: access["resources"].find_one({}, fields, sort=_NEWEST))
    if newest is None:
        return None
    if run_id is not None and newest.get("run_id") != run_id:
        mine = {"run_id": run_id}
        newest_of_run = await access.call(lambda: access["resources"].find_one(mine, fields, sort=_NEWEST))
        newest = newest_of_run or newest
    return str(newest["_id"])


async def require(access: Access, resources_ids: Values[str]) -> None:
    """Raise NotFoundError unless all ids are known."""
    if not resources_ids:
        return
    wanted = list(resources_ids)
    found = await access.call(
        lambda: access["resources"].find({"_id": {"$in": wanted}}, {"_id": 1}).to_list()
    )
    missing = set(wanted) - {document["_id"] for document in found}
    if missing:
        raise _missing(min(missing))


def named_resources(document: Document) -> NamedResources:
    """Return the resources of a document."""
    return NamedResources(
        resources_id=document["_id"],
        version=document["version"],
        run_id=document.get("run_id"),
        resources=orjson.loads(document["resources"]),
        created_at=document["created_at"],
    )


def _missing(resources_id: str) -> NotFoundError:
    return NotFoundError(f"no resources have the id {resources_id!r}: add them before they are used")
