"""The SQLite stores whole: a file, or memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from agl.errors import ConfigError
from agl.store.base import LightningStore
from agl.store.sqlite.access import MEMORY, Access, random_id
from agl.store.sqlite.connection import identity, size_bytes
from agl.store.sqlite.migrations import SCHEMA_VERSION
from agl.store.sqlite.queue import SqliteQueue
from agl.store.sqlite.records import SqliteRecords
from agl.store.sqlite.restoring import SqliteRestoring
from agl.store.sqlite.retention import SqliteRetention
from agl.store.sqlite.tally import statistics
from agl.store.sqlite.writer import nothing


class SqliteStore(SqliteQueue, SqliteRecords, SqliteRetention, SqliteRestoring, LightningStore):
    """A store in an SQLite database, with its clock and ids as arguments.

    Args:
        path: the file (made with its folder when missing), or ``:memory:``.
        clock: Unix seconds; all times in the store are this clock's.
        new_id: makes an id of a given prefix.
        read_only: read a file that another process may be serving; refuse every write.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[str], str] = random_id,
        read_only: bool = False,
    ) -> None:
        self._access = Access(path, clock=clock, new_id=new_id, read_only=read_only)

    @property
    def location(self) -> str:
        """The file, or ``memory``."""
        return "memory" if self._access.path == MEMORY else self._access.path

    async def statistics(self, *, run_id: str | None = None) -> dict[str, Any]:
        """Return counts, of one run or of all."""
        return await self._access.read(lambda db: statistics(db, run_id))

    async def health(self) -> dict[str, Any]:
        """Return the store's status, identity, schema version and size."""
        found, size = await self._access.read(lambda db: (identity(db), size_bytes(db)))
        return {"status": "ok", "identity": found, "schema_version": SCHEMA_VERSION, "size_bytes": size}

    async def sweep(self) -> None:
        """Let the watchdog look now. The store does so by itself; this is for clocks that are not the system's."""
        await self._access.write(nothing)

    async def backup(self, path: str) -> None:
        """Write a consistent copy, a store of its own with another identity, to a new file; writers go on meanwhile.

        Raises:
            StoreError: there is such a file, or it cannot be written.
        """
        await self._access.back_up(path)

    def announce(self, url: str) -> None:
        """Let a process that finds the file taken say where its records are served."""
        self._access.announce(url)

    async def open(self) -> None:
        """Take hold of the database.

        Raises:
            StoreError: the file is not a store's, is a newer version's, or is open in another process.
        """
        await self._access.open()

    async def close(self) -> None:
        """Write what is left and let go."""
        await self._access.close()


class SqliteLightningStore(SqliteStore):
    """The store in one file. What it has acknowledged survives ``kill -9``; one process at a time may write it.

    Args:
        path: the file, made with its folder when missing.
        read_only: read it, while another process serves it or none does; nothing is written, locked or made, and every
            change raises AccessDeniedError.
    """

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        if not path or path == MEMORY:
            raise ConfigError(
                f"store.path is {path!r}: give a file, or use agl.store.sqlite.InMemoryLightningStore"
            )
        super().__init__(path, read_only=read_only)


class InMemoryLightningStore(SqliteStore):
    """The store in this process's memory: nothing is kept once it closes."""

    def __init__(self) -> None:
        super().__init__(MEMORY)
