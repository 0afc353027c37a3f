"""A consistent copy of a store that is being served.

SQLite's backup within one read transaction: it copies the pages of one moment while others go on writing to the log.
(``VACUUM INTO`` would do too, at several times the work.) The copy is a store of its own, with another identity: a
client that knew the original is told that this one is another, instead of taking up with an older state.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import uuid
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

from agl.errors import StoreError
from agl.store.sqlite.connection import connect
from agl.store.sqlite.failures import store_error

PAGES_AT_ONCE = 2000
"""8 MB between two looks at whether to go on."""


def back_up_file(
    read: Callable[[Callable[[sqlite3.Connection], None]], None],
    target: str,
    *,
    now: float,
    go_on: Callable[[], None],
) -> None:
    """Copy a store's file, served or not, to ``target``, which appears once it is complete and on the disk.

    Args:
        read: runs a function on a connection to the store's file, within a read transaction.
        target: the new file.
        now: Unix seconds, the copy's time of creation.
        go_on: is called between steps; what it raises ends the copy.

    Raises:
        StoreError: ``target`` exists, or cannot be written.
    """

    def copy(partial: sqlite3.Connection) -> None:
        read(
            lambda db: db.backup(
                partial, pages=PAGES_AT_ONCE, progress=lambda _status, _left, _total: go_on()
            )
        )

    _write(target, copy, now=now)


def read_served(path: str, read: Callable[[sqlite3.Connection], None]) -> None:
    """Run a read of one moment of the file that this process serves."""
    with closing(connect(path, read_only=True)) as db:
        db.execute("BEGIN")
        db.execute("SELECT identity FROM identity").fetchone()  # from now on this moment is seen
        read(db)


def back_up_bytes(data: bytes, target: str, *, now: float) -> None:
    """Write a store that was serialized to ``target``, as ``back_up_file`` does."""

    def copy(partial: sqlite3.Connection) -> None:
        with closing(sqlite3.connect(":memory:")) as db:
            db.deserialize(data)
            db.backup(partial)

    _write(target, copy, now=now)


def _write(target: str, copy: Callable[[sqlite3.Connection], None], *, now: float) -> None:
    final = Path(target)
    _require_new(final)
    try:
        with _partial(final) as partial:
            with closing(sqlite3.connect(partial, isolation_level=None)) as db:
                db.execute("PRAGMA synchronous = OFF")  # until it is complete it may as well be lost
                copy(db)
                db.execute("PRAGMA journal_mode = DELETE")  # opens in a folder that is read-only
                db.execute("UPDATE identity SET identity = ?, created_at = ?", (str(uuid.uuid4()), now))
            _publish(partial, final)
    except sqlite3.Error as error:
        raise store_error(error) from error
    except StoreError:
        raise  # some are OSErrors too
    except OSError as error:
        raise StoreError(f"the copy {target} cannot be written: {error}") from error


@contextmanager
def _partial(final: Path) -> Generator[Path]:
    """Hold the unfinished copy's file, empty at first and gone in the end. What a killed process left is taken over."""
    path = final.with_name(f"{final.name}.partial")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(
                f"another copy is being written to {final}: wait for it, or name another file"
            ) from error
        os.ftruncate(descriptor, 0)
        _remove_journals(path)
        try:
            yield path
        finally:
            _remove_journals(path)
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _remove_journals(path: Path) -> None:
    for ending in ("-journal", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _publish(partial: Path, final: Path) -> None:
    """Give the complete copy its name, unless the name is taken by now."""
    descriptor = os.open(partial, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(partial, final)
    except FileExistsError:
        _require_new(final)
        raise
    except OSError:  # a file system without hard links
        _require_new(final)
        partial.rename(final)
    folder = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _require_new(final: Path) -> None:
    if os.path.lexists(final):
        raise StoreError(f"{final} exists: name a new file for the copy")
