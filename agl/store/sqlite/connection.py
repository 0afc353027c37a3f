"""The file: who owns it, whether it is ours and of which version, and connections to it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import uuid
from pathlib import Path

import orjson

from agl.errors import StoreError
from agl.store.packed import packed_text
from agl.store.sqlite.failures import PRIMARY
from agl.store.sqlite.migrations import SCHEMA_VERSION, migrate, schema_text
from agl.store.sqlite.terms import stored_terms

APPLICATION_ID = 0x61676C31
"""``agl1``: marks our files in the header of SQLite's format (https://www.sqlite.org/fileformat.html#application_id)."""
MAX_LOG_BYTES = 64_000_000
"""What the write-ahead log keeps of its size once all of it is in the file; a long read or a migration made it grow."""
LOG_PAGES = 4000
"""Pages of the log (16 MB) after which a commit copies it into the file, 4 times SQLite's own: the ends of the indexes,
which each commit changes anew, are copied once for all of them. A lifecycle over HTTP takes 1.41 of 1.48 ms of the
server's processor time (medians of 6 runs in turn of benchmarks/store_http.py, which scatter by 0.1 ms).
"""
CACHED_STATEMENTS = 512
"""Inserts are prepared for each number of rows up to 64; the rest are fewer than 100 statements."""


class Ownership:
    """One process's exclusive hold of a store's file. The system lets go when the process dies, however it dies."""

    def __init__(self, path: str) -> None:
        self._file = path
        self._path = Path(f"{path}.lock")
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take hold.

        Raises:
            StoreError: another process (or another store of this one) has the file; says which.
        """
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner, _, url = os.read(descriptor, 1000).decode("utf-8", "replace").partition("\n")
            os.close(descriptor)
            advice = (
                f", which serves it at {url.strip()}: use that URL, or end the process"
                if url.strip()
                else ": end that process, give this one another file, or let both talk to one `agl store`"
            )
            raise StoreError(
                f"{self._file} is open in process {owner.strip() or 'unknown'}{advice}"
            ) from error
        self._descriptor = descriptor
        self.announce("")

    def announce(self, url: str) -> None:
        """Tell who finds the file taken that its records are served at ``url``; empty where they are not."""
        if self._descriptor is not None:
            text = f"{os.getpid()}\n{url}\n".encode()
            os.pwrite(self._descriptor, text, 0)
            os.ftruncate(self._descriptor, len(text))

    def let_go(self) -> None:
        """Let others have the file. The lock file stays: removing it would let two processes own the store."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def connect(path: str, *, read_only: bool = False, uri: bool = False) -> sqlite3.Connection:
    """Return a connection that may wander between threads, to a file or an SQLite URI; transactions are explicit."""
    db = sqlite3.connect(
        path,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
        timeout=30.0,
        uri=uri,
    )
    db.execute("PRAGMA temp_store = MEMORY")
    db.create_function("json_has", 3, json_has, deterministic=True)
    db.create_function("packed_text", 2, packed_text, deterministic=True)
    db.create_function("stored_terms", 3, stored_terms, deterministic=True)
    if read_only:
        db.execute("PRAGMA query_only = ON")
    return db


def json_has(text: str, key: str, wanted: str) -> bool:
    """Return whether a JSON object has the key with the wanted JSON value, whatever the order of keys within it."""
    value = orjson.loads(text)
    return key in value and value[key] == orjson.loads(wanted)


def open_database(path: str, *, now: float) -> sqlite3.Connection:
    """Return the writer's connection to a new or existing store.

    WAL with synchronous=NORMAL: a commit is in the system's hands when it returns, so that killing the process loses
    nothing of it; a power cut may lose the last commits and never corrupts (https://www.sqlite.org/wal.html).

    Raises:
        StoreError: the file is not a store of ours, or one of a newer version, or cannot be opened.
    """
    try:
        db = connect(path)
    except sqlite3.Error as error:
        raise _unopened(path, error) from error
    try:
        require_ours(db, path)
        if db.execute("PRAGMA user_version").fetchone()[0] == 0:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # must come before the first page is written
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA journal_size_limit = {MAX_LOG_BYTES}")
        db.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        if db.execute("PRAGMA user_version").fetchone()[0] == 0:
            _create(db, now)
        else:
            migrate(db, path, now=now)
    except sqlite3.DatabaseError as error:
        db.close()
        raise _unopened(path, error) from error
    except StoreError:
        db.close()
        raise
    return db


def _unopened(path: str, error: sqlite3.Error) -> StoreError:
    full = getattr(error, "sqlite_errorcode", 0) & PRIMARY in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return StoreError(f"{path} cannot be opened as a store: {error}{': is the disk full?' if full else ''}")


def identity(db: sqlite3.Connection) -> str:
    """Return the uuid that was made with the store."""
    return str(db.execute("SELECT identity FROM identity").fetchone()[0])


def size_bytes(db: sqlite3.Connection) -> int:
    """Return how large the database is, without its write-ahead log."""
    pages, page_bytes = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(pages * page_bytes)


def require_ours(db: sqlite3.Connection, path: str) -> int:
    """Return a store's schema version, 0 for an empty file.

    Raises:
        StoreError: the file is another program's, or a newer version's.
    """
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if application != APPLICATION_ID and (tables or application or version):
        raise StoreError(f"{path} is an SQLite file of another program: give the store a file of its own")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema version {version} and this agl knows {SCHEMA_VERSION}: open it with a newer agl"
        )
    return version


def _create(db: sqlite3.Connection, now: float) -> None:
    db.executescript(
        f"BEGIN IMMEDIATE;\n{schema_text()}\n"
        f"PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {SCHEMA_VERSION};\n"
        f"INSERT INTO identity VALUES ('{uuid.uuid4()}', {now!r});\nCOMMIT;"
    )
