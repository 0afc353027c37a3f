"""Run SQL that a model wrote without letting it hurt or hang, and compare answers by execution.

Reads only: the connection is read-only, and SQLite's authorizer refuses everything but reading tables and
calling harmless functions. Bounded: time, virtual machine instructions, rows, bytes and memory.
"""

import math
import re
import sqlite3
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from .schemas import database_bytes

GENERATED = "generated:"  # with this prefix schemas.py builds it, without it is a file
Row = tuple[object, ...]

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
# Besides what reaches outside: what makes a huge value in one instruction, where no limit can stop it in time.
_REFUSED_FUNCTIONS = {
    "load_extension",
    "fts3_tokenizer",
    "readfile",
    "writefile",
    "edit",
    "zeroblob",
    "randomblob",
    "printf",
    "format",
}
_STEP = 1000  # instructions between two looks at the clock


class QueryError(Exception):
    """The query was refused, failed or ran into a limit; the message is what the model is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one query may use. A cell longer than `max_cell_bytes` is an error inside SQLite."""

    seconds: float = 2.0
    instructions: int = 20_000_000
    rows: int = 10_000
    bytes: int = 8_000_000
    max_cell_bytes: int = 20_000
    memory_bytes: int = 256_000_000
    sql_chars: int = 4_000


def open_database(name: str, limits: Limits) -> sqlite3.Connection:
    """A locked-down connection to a generated database or to an SQLite file.

    Raises FileNotFoundError or ValueError when there is none: the caller's mistake, not the query's.
    """
    if name.startswith(GENERATED):
        content = database_bytes(name.removeprefix(GENERATED))
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.deserialize(content)
    else:
        path = Path(name)
        if not path.is_file():
            raise FileNotFoundError(f"there is no database file {path}")
        uri = f"file:{quote(str(path.resolve()))}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA query_only = 1")
    connection.execute("PRAGMA trusted_schema = 0")
    connection.execute("PRAGMA temp_store = 2")  # memory, which is watched, not the disk, which is not
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    for limit, value in (
        (sqlite3.SQLITE_LIMIT_LENGTH, limits.max_cell_bytes),
        (sqlite3.SQLITE_LIMIT_SQL_LENGTH, limits.sql_chars * 4),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
        (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 20),
        (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100),
        (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100),
    ):
        connection.setlimit(limit, value)
    connection.set_authorizer(_authorize)
    return connection


def _authorize(action: int, _argument: str | None, other: str | None, *_: str | None) -> int:
    if action in _ALLOWED:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and (other or "").lower() not in _REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _peak_memory_bytes() -> int:
    try:
        import resource
    except ImportError:  # not on this platform: the other limits have to do
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class _Watch:
    """A progress handler that says why it stopped the query."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.deadline = time.monotonic() + limits.seconds
        self.memory = _peak_memory_bytes() + limits.memory_bytes
        self.steps = 0
        self.reason = ""

    def __call__(self) -> int:
        self.steps += 1
        if self.steps * _STEP > self.limits.instructions:
            self.reason = "too many steps"
        elif time.monotonic() > self.deadline:
            self.reason = "out of time"
        elif _peak_memory_bytes() > self.memory:
            self.reason = "out of memory"
        return bool(self.reason)


def execute(database: str, sql: str, limits: Limits | None = None) -> list[Row]:
    """All rows of one query, or QueryError; a missing database raises as in `open_database`."""
    limits = limits or Limits()
    if len(sql) > limits.sql_chars:
        raise QueryError(f"the query is longer than {limits.sql_chars} characters")
    connection, watch = open_database(database, limits), _Watch(limits)
    try:
        connection.set_progress_handler(watch, _STEP)
        return _fetch(connection.execute(sql), limits)
    except MemoryError as error:
        raise QueryError("out of memory") from error
    except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError, ValueError) as error:
        raise QueryError(watch.reason or str(error)) from error
    finally:
        connection.close()


def _fetch(cursor: sqlite3.Cursor, limits: Limits) -> list[Row]:
    rows: list[Row] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += sum(len(cell) if isinstance(cell, str | bytes) else 8 for cell in row)
        if len(rows) > limits.rows:
            raise QueryError(f"more than {limits.rows} rows")
        if size > limits.bytes:
            raise QueryError(f"more than {limits.bytes} bytes")
    return rows


def is_ordered(sql: str) -> bool:
    """True when the outermost query has an ORDER BY, so that the order of its rows is part of its answer."""
    plain = re.sub(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]", "''", sql)
    while (inner := re.sub(r"\([^()]*\)", " ", plain)) != plain:
        plain = inner
    return re.search(r"\border\s+by\b", plain, re.IGNORECASE) is not None


def _sort_key(row: Row) -> tuple[object, ...]:
    """Text and NULL before numbers, so that a rounding error cannot reorder different rows."""
    words = [(cell is None, str(type(cell)), str(cell)) for cell in row if not isinstance(cell, int | float)]
    numbers = [float(cell) for cell in row if isinstance(cell, int | float)]
    return words, numbers


def _equal(one: object, other: object) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
    return type(one) is type(other) and one == other


def same_answer(rows: Sequence[Row], gold: Sequence[Row], *, ordered: bool) -> bool:
    """True for the same multiset of rows (list, where `ordered`); columns in order, numbers equal to 1e-6."""
    if len(rows) != len(gold) or (rows and len(rows[0]) != len(gold[0])):
        return False
    if not ordered:
        rows, gold = sorted(rows, key=_sort_key), sorted(gold, key=_sort_key)
    return all(
        _equal(a, b) for row, wanted in zip(rows, gold, strict=True) for a, b in zip(row, wanted, strict=True)
    )
