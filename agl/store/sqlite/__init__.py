"""The SQLite store: a file that survives the process, or memory that does not."""

from agl.store.sqlite.store import InMemoryLightningStore, SqliteLightningStore, SqliteStore

__all__ = ["InMemoryLightningStore", "SqliteLightningStore", "SqliteStore"]
