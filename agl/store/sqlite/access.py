"""Access to an open database: writes through the writer, reads beside it, and the waits that writes end."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from agl.errors import StoreError, StoreUnavailableError
from agl.store.sqlite.attempts import AttemptDeadlines, grant_grace
from agl.store.sqlite.connection import Ownership, open_database
from agl.store.sqlite.reader import Readers
from agl.store.sqlite.space import give_pages_back, truncate_log
from agl.store.sqlite.writer import Operation, Transaction, Writer, nothing
from agl.store.waiting import Arrivals, Finishes
from agl.store.watchdog import sweep

T = TypeVar("T")
MEMORY = ":memory:"


def random_id(prefix: str) -> str:
    """Return a new id: the prefix and 64 random bits."""
    return f"{prefix}-{secrets.token_hex(8)}"


class Access:
    """An SQLite database between ``open`` and ``close``.

    Args:
        path: the file, or ``:memory:``.
        clock: Unix seconds.
        new_id: makes an id of a given prefix.
    """

    def __init__(self, path: str, *, clock: Callable[[], float], new_id: Callable[[str], str]) -> None:
        self.path = path
        self.clock = clock
        self._new_id = new_id
        self._ownership: Ownership | None = None
        self._db: sqlite3.Connection | None = None
        self._writer: Writer | None = None
        self._readers: Readers | None = None
        self._visits: set[asyncio.Future[None]] = set()
        self.arrivals = Arrivals()
        self.finishes = Finishes()
        self.closing = False

    async def open(self) -> None:
        """Take hold of the file and start the writer."""
        if self._writer is not None:
            raise StoreError(f"the store {self.path} is open already")
        self._db = await asyncio.to_thread(self._open)
        self.arrivals, self.finishes, self.closing = Arrivals(), Finishes(), False
        self._writer = Writer(
            self._db,
            clock=self.clock,
            new_id=self._new_id,
            sweep=_sweep,
            committed=self._committed,
        )
        if self.path != MEMORY:
            self._readers = Readers(self.path)
        await self._writer.submit(
            nothing
        )  # sweeps: what ran out while the store was away has ended when it is open

    async def close(self) -> None:
        """Let waiters go, write what is left and let go of the file."""
        writer, db = self._writer, self._db
        if writer is None or db is None or self.closing:
            return
        self.closing = True
        self.arrivals.close()
        self.finishes.close()
        if self._visits:
            await asyncio.wait(self._visits)
        await writer.close()
        self._writer = self._db = None
        await asyncio.to_thread(self._close, db)

    def write(
        self, operation: Operation[T], *, undo: Callable[[T], Operation[None]] | None = None
    ) -> asyncio.Future[T]:
        """Run an operation in the next transaction."""
        if self._writer is None:
            raise self._unavailable()
        return self._writer.submit(operation, undo=undo)

    def read(self, read: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a read that sees all acknowledged writes."""
        if self._writer is None:
            raise self._unavailable()
        if self._readers is None:
            return self._writer.submit(lambda transaction: read(transaction.db))
        return self._readers.submit(read)

    def announce(self, url: str) -> None:
        """Write beside the file where its records are served."""
        if self._ownership is not None:
            self._ownership.announce(url)

    async def shrink(self) -> None:
        """Give the pages that deletions freed back to the system, a few at a time."""
        if self._readers is None:
            return  # memory keeps them for what comes next
        while await self.write(give_pages_back):
            pass
        await asyncio.to_thread(truncate_log, self.path)

    @contextmanager
    def visit(self) -> Generator[None]:
        """Keep the database open for a wait: ``close`` ends the wait, then waits for the visitor to leave."""
        if self._writer is None or self.closing:
            raise self._unavailable()
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._visits.add(gone)
        try:
            yield
        finally:
            self._visits.discard(gone)
            gone.set_result(None)

    def _open(self) -> sqlite3.Connection:
        if self.path == MEMORY:
            return open_database(self.path, now=self.clock())
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        ownership = Ownership(self.path)
        ownership.take()
        try:
            db = open_database(self.path, now=self.clock())
            grant_grace(db, self.clock())
        except StoreError:
            ownership.let_go()
            raise
        self._ownership = ownership
        return db

    def _close(self, db: sqlite3.Connection) -> None:
        if self._readers is not None:
            self._readers.close()
            self._readers = None
        db.close()
        if self._ownership is not None:
            self._ownership.let_go()
            self._ownership = None

    def _committed(self, transaction: Transaction) -> None:
        self.arrivals.announce(transaction.arrived)
        self.finishes.announce(transaction.finished)

    def _unavailable(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"the store {self.path} is not open: use it inside `async with store:`")


def _sweep(transaction: Transaction) -> None:
    sweep(AttemptDeadlines(transaction), transaction.now)
