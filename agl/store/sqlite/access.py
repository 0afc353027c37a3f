"""Access to an open database: writes through the writer, reads beside it, and the waits that writes end."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from agl.errors import StoreError, StoreUnavailableError
from agl.store.sqlite.attempts import AttemptDeadlines, finished_among, grant_grace
from agl.store.sqlite.backup import back_up_bytes, back_up_file, read_served
from agl.store.sqlite.connection import Ownership, open_database
from agl.store.sqlite.failures import store_error
from agl.store.sqlite.pausing import release_due
from agl.store.sqlite.read_only import ReadOnlyReaders, read_file, refusal, require_readable
from agl.store.sqlite.reader import Readers
from agl.store.sqlite.space import give_pages_back, truncate_log
from agl.store.sqlite.writer import Operation, Transaction, Writer, nothing
from agl.store.waiting import Arrivals, Finishes
from agl.store.watchdog import sweep

T = TypeVar("T")
log = logging.getLogger(__name__)
LOOK_SECONDS = 0.2
"""How often a file that is only read is looked at for rollouts that somebody waits for."""
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
        read_only: read a file that another process may be serving; refuse every write.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Callable[[], float],
        new_id: Callable[[str], str],
        read_only: bool = False,
    ) -> None:
        self.path = path
        self._read_only = read_only
        self.clock = clock
        self._new_id = new_id
        self._ownership: Ownership | None = None
        self._db: sqlite3.Connection | None = None
        self._writer: Writer | None = None
        self._readers: Readers | ReadOnlyReaders | None = None
        self._looking: asyncio.Task[None] | None = None
        self._visits: set[asyncio.Future[None]] = set()
        self.arrivals = Arrivals()
        self.finishes = Finishes()
        self.closing = False

    async def open(self) -> None:
        """Take hold of the file and start the writer."""
        if self._is_open:
            raise StoreError(f"the store {self.path} is open already")
        self.arrivals, self.finishes, self.closing = Arrivals(), Finishes(), False
        if self._read_only:
            await asyncio.to_thread(require_readable, self.path)
            self._readers = ReadOnlyReaders(self.path)
            self._looking = asyncio.create_task(self._look_for_finishes())
            return
        self._db = await asyncio.to_thread(self._open)
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
        if not self._is_open or self.closing:
            return
        self.closing = True
        if self._looking is not None:
            self._looking.cancel()
        self.arrivals.close()
        self.finishes.close()
        if self._visits:
            await asyncio.wait(self._visits)
        if self._writer is not None:
            await self._writer.close()
        await asyncio.to_thread(self._close)

    def write(
        self, operation: Operation[T], *, undo: Callable[[T], Operation[None]] | None = None
    ) -> asyncio.Future[T]:
        """Run an operation in the next transaction. AccessDeniedError where the file is only read."""
        if self._writer is None:
            raise refusal(self.path) if self._is_open else self._unavailable()
        return self._writer.submit(operation, undo=undo)

    def read(self, read: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a read that sees all acknowledged writes."""
        if self._readers is not None:
            return self._readers.submit(read)
        if self._writer is not None:
            return self._writer.submit(lambda transaction: read(transaction.db))
        raise self._unavailable()

    def announce(self, url: str) -> None:
        """Write beside the file where its records are served."""
        if self._ownership is not None:
            self._ownership.announce(url)

    async def back_up(self, target: str) -> None:
        """Write a consistent copy to a new file. What is unfinished when it is cancelled or closed goes."""
        gone = threading.Event()

        def go_on() -> None:
            if gone.is_set() or self.closing:
                raise StoreUnavailableError(
                    f"the copy {target} was given up: its caller left or the store closes"
                )

        with self.visit():
            if self.path == MEMORY:
                data = await self.read(lambda db: db.serialize())
                copy = asyncio.to_thread(back_up_bytes, data, target, now=self.clock())
            else:
                read = partial(read_file if self._read_only else read_served, self.path)
                copy = asyncio.to_thread(back_up_file, read, target, now=self.clock(), go_on=go_on)
            work = asyncio.ensure_future(copy)
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                gone.set()
                await asyncio.wait((work,))
                raise

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
        if not self._is_open or self.closing:
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
        if Path(self.path).is_dir():
            raise StoreError(f"{self.path} is a folder: give the file in it")
        ownership = Ownership(self.path)
        try:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            ownership.take()
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be opened for writing: {error}. Give a path that can be written, or read_only=True"
            ) from error
        try:
            db = open_database(self.path, now=self.clock())
        except StoreError:
            ownership.let_go()
            raise
        try:
            grant_grace(db, self.clock())
        except sqlite3.Error as error:
            db.close()
            ownership.let_go()
            raise store_error(error) from error
        self._ownership = ownership
        return db

    def _close(self) -> None:
        if self._readers is not None:
            self._readers.close()
        if self._db is not None:
            self._db.close()
        self._readers = self._writer = self._db = None
        if self._ownership is not None:
            self._ownership.let_go()
            self._ownership = None

    @property
    def _is_open(self) -> bool:
        return self._writer is not None or self._readers is not None

    async def _look_for_finishes(self) -> None:
        """Tell those who wait what another process has finished: a file that is only read announces nothing."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if waiting := self.finishes.waiting():
                try:
                    found = await self.read(partial(finished_among, rollout_ids=waiting))
                except StoreError as error:
                    log.warning("%s cannot be read now, and is read again: %s", self.path, error)
                else:
                    self.finishes.announce(found)

    def _committed(self, transaction: Transaction) -> None:
        self.arrivals.announce(transaction.arrived)
        self.finishes.announce(transaction.finished)

    def _unavailable(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"the store {self.path} is not open: use it inside `async with store:`")


def _sweep(transaction: Transaction) -> None:
    sweep(AttemptDeadlines(transaction), transaction.now)
    release_due(transaction)
