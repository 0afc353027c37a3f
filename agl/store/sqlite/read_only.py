"""Reading a store's file without a trace: no lock, no log, no write, while another process serves it or none does.

A file with a write-ahead log beside it is or was served: it is read through the log. Without one it is at rest and
read as SQLite's ``immutable`` (https://www.sqlite.org/uri.html), which needs no second file and so works where none can
be made. Every read connects anew and, at rest, looks afterwards whether the file was still the same.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from agl.errors import AccessDeniedError, StoreError, StoreUnavailableError
from agl.store.sqlite.connection import connect, require_ours
from agl.store.sqlite.failures import store_error
from agl.store.sqlite.migrations import SCHEMA_VERSION
from agl.store.sqlite.reader import NUM_READERS

T = TypeVar("T")
MAX_TRIES = 5
"""Reads of a file that is opened and closed by others all the time, before it is given up."""


class ReadOnlyReaders:
    """What ``Readers`` is, for a file that belongs to others."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._threads = ThreadPoolExecutor(max_workers=NUM_READERS, thread_name_prefix="agl-store-reader")

    def submit(self, read: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a read on one of the threads."""
        return asyncio.get_running_loop().run_in_executor(self._threads, read_file, self._path, read)

    def close(self) -> None:
        """Finish the reads under way."""
        self._threads.shutdown(wait=True)


def require_readable(path: str) -> None:
    """Check that a file is a store of this version.

    Raises:
        StoreError: it is not, or there is none.
    """
    if not Path(path).is_file():
        raise StoreError(f"there is no store at {path} to read")
    version = read_file(path, lambda db: require_ours(db, path))
    if not version:
        raise StoreError(f"the store {path} is empty: whoever is to write in it has not begun")
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema version {version} and this agl reads {SCHEMA_VERSION}: open it once for writing,"
            " which migrates it"
        )


def refusal(path: str) -> AccessDeniedError:
    """Return the error of every write."""
    return AccessDeniedError(
        f"the store {path} is open for reading only: open it without read_only to change it"
    )


def read_file(path: str, read: Callable[[sqlite3.Connection], T]) -> T:
    """Run a read on a connection of its own, which sees everything committed before it began.

    Raises:
        StoreError: SQLite refused.
    """
    for _ in range(MAX_TRIES):
        at_rest = _at_rest(path)
        try:
            result = _read(path, read, "immutable=1" if at_rest else "mode=ro")
        except sqlite3.Error as error:
            if at_rest and _at_rest(path) != at_rest:
                continue
            raise store_error(error, path) from error
        except OverflowError as error:
            raise store_error(error) from error
        if at_rest is None or _at_rest(path) == at_rest:
            return result
    raise StoreUnavailableError(f"{path} changed hands {MAX_TRIES} times while it was read: read it again")


def _read(path: str, read: Callable[[sqlite3.Connection], T], how: str) -> T:
    with closing(connect(f"{Path(path).absolute().as_uri()}?{how}", read_only=True, uri=True)) as db:
        db.execute("BEGIN")
        db.execute("SELECT 1 FROM sqlite_schema").fetchone()  # from now on this moment is seen
        return read(db)


def _at_rest(path: str) -> tuple[int, int] | None:
    """Return when a file without a log was changed last and how large it is, None for one with a log."""
    if Path(f"{path}-wal").exists():
        return None
    found = Path(path).stat()
    return found.st_mtime_ns, found.st_size
