"""Reads off the event loop, on connections of their own: a long list never holds up the queue."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from agl.store.sqlite.connection import connect
from agl.store.sqlite.failures import store_error

T = TypeVar("T")
NUM_READERS = 2
"""Two, so that one long list leaves a thread for short reads; Python runs one of them at a time anyway."""


class Readers:
    """A few threads with a read-only connection each. A read sees everything that was committed before it began."""

    def __init__(self, path: str) -> None:
        self._threads = ThreadPoolExecutor(max_workers=NUM_READERS, thread_name_prefix="agl-store-reader")
        self._free: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        for _ in range(NUM_READERS):
            self._free.put(connect(path, read_only=True))

    def submit(self, read: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a read on one of the threads."""
        return asyncio.get_running_loop().run_in_executor(self._threads, self._run, read)

    def close(self) -> None:
        """Finish the reads under way and close the connections."""
        self._threads.shutdown(wait=True)
        for _ in range(NUM_READERS):
            self._free.get().close()

    def _run(self, read: Callable[[sqlite3.Connection], T]) -> T:
        db = self._free.get()
        try:
            db.execute("BEGIN")
            try:
                return read(db)
            finally:
                db.execute("COMMIT")
        except (sqlite3.Error, OverflowError) as error:
            raise store_error(error) from error
        finally:
            self._free.put(db)
