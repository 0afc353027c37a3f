"""The MongoDB store: many server processes on one database, each change one document's."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agl.errors import require_extra

if TYPE_CHECKING:
    from agl.store.mongo.store import MongoLightningStore, MongoStore

__all__ = ["MongoLightningStore", "MongoStore"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'agl.store.mongo' has no attribute {name!r}")
    require_extra("the MongoDB store", "mongo", "pymongo")
    return getattr(import_module("agl.store.mongo.store"), name)
