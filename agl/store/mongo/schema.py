"""Collections, their indexes, and the document that says what this namespace is."""

from __future__ import annotations

import uuid
from typing import Any

from pymongo import IndexModel
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError

from agl.errors import StoreError
from agl.store.mongo.documents import Document

SCHEMA_VERSION = 1
"""Of the documents in MongoDB; counted apart from the schema of SQLite files."""
INDEX_VERSION = 2
"""Of the indexes: one more whenever one of them changes, so that older namespaces get it."""
STORE_ID = "store"
Collection = AsyncCollection[Document]


def _index(*keys: str, name: str | None = None, **options: Any) -> IndexModel:
    """Return an index; a key that begins with ``-`` descends."""
    pairs = [(key.lstrip("-"), -1 if key.startswith("-") else 1) for key in keys]
    return IndexModel(
        pairs, name=name or "_".join(key.strip("-").replace(".", "_") for key in keys), **options
    )


def indexes() -> dict[str, list[IndexModel]]:
    """Return the indexes of each collection.

    Unique ones carry promises: an attempt belongs to one rollout, a repeated dequeue claims nothing twice
    (``slots``), a sequence id is given once. Fields are missing rather than null or empty, so that sparse indexes
    leave them out.
    """
    queued = {"partialFilterExpression": {"queued": True}}
    pausing = {"partialFilterExpression": {"retry_at": {"$exists": True}}}
    of_rollout = {"partialFilterExpression": {"rollout_id": {"$exists": True}}}
    return {
        "rollouts": [
            _index("queued", "-priority", "place", name="queue", **queued),
            _index("queued", "run_id", "-priority", "place", name="run_queue", **queued),
            _index("retry_at", "position", name="retry", **pausing),
            _index("status", "deadline"),
            _index("status", "created_at"),
            _index("run_id", "status", "created_at"),
            _index("created_at", "position"),
            _index("started_at", "position"),
            _index("finished_at", "position"),
            _index("reward", "position"),
            _index("group_id", sparse=True),
            _index("resources_id", sparse=True),
            _index("workers", sparse=True),
            _index("open.worker_id", sparse=True),
            _index("attempt_ids", unique=True, sparse=True),
            _index("slots", unique=True, sparse=True),
            _index("first", sparse=True),
            _index("last", sparse=True),
        ],
        "spans": [
            _index("rollout_id", "number", "sequence_id", name="numbers", unique=True, **of_rollout),
            _index("position", "_id", name="arrival"),
            _index("trace_id", "position"),
            _index("run_id", "position", sparse=True),
            _index("name", "position"),
            _index("tokens", sparse=True),
            _index("blobs", sparse=True),
        ],
        "blobs": [],
        "resources": [_index("version", unique=True), _index("run_id", "version", sparse=True)],
        "workers": [_index("position", "_id", name="registration")],
        "runs": [_index("position", "_id", name="creation")],
        "metrics": [_index("run_id", "step", "name")],
        "batches": [_index("at"), _index("batch")],
        "store": [],
    }


async def prepare(collections: dict[str, Collection], location: str) -> str:
    """Make what is missing and return the identity: processes that open a new namespace at the same time agree on it.

    Indexes are made when a namespace is new, and when this version of them is; the document that says so comes last.

    Raises:
        StoreError: the documents are of a newer version.
    """
    store = collections["store"]
    found = await store.find_one({"_id": STORE_ID})
    if found is not None:
        _check_version(found, location)
    if found is None or found["indexes"] < INDEX_VERSION:
        for name, models in indexes().items():
            if models:
                await collections[name].create_indexes(models)
    if found is None:
        made: Document = {
            "_id": STORE_ID,
            "identity": str(uuid.uuid4()),
            "schema_version": SCHEMA_VERSION,
            "indexes": INDEX_VERSION,
        }
        try:
            await store.insert_one(made)
            return str(made["identity"])
        except DuplicateKeyError:
            found = await store.find_one({"_id": STORE_ID})
            assert found is not None, "another process just made it"
            _check_version(found, location)
    if found["indexes"] < INDEX_VERSION:
        await store.update_one({"_id": STORE_ID}, {"$max": {"indexes": INDEX_VERSION}})
    return str(found["identity"])


def _check_version(found: Document, location: str) -> None:
    version = found["schema_version"]
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{location} has schema version {version} and this agl knows {SCHEMA_VERSION}: use a newer agl, "
            "or another database or prefix"
        )


def collections_of(database: AsyncDatabase[Document], prefix: str) -> dict[str, Collection]:
    """Return the namespace's collections by their short names."""
    return {name: database[f"{prefix}{name}"] for name in indexes()}
