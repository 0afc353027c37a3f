"""Older files become files of today's schema when they are opened, one version a step.

A step is one transaction, its version number included: whatever ends the process in the middle, the file is still whole
and of the version before, so no copy of it is made first.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

import orjson

from agl.store.cutting import has_marks
from agl.store.packed import PACKED_KEYS, pack
from agl.store.sqlite.blobs import stow

log = logging.getLogger(__name__)
SCHEMA_VERSION = 3
INCREMENTAL = 2
"""What ``PRAGMA auto_vacuum`` answers in a file whose free pages can be cut off."""
ROWS_AT_ONCE = 1000
ROWS_A_REPORT = 50_000
"""Rows rewritten between two lines of the log, a few seconds."""


def schema_text() -> str:
    """Return the SQL that makes an empty store of today's version."""
    return files("agl.store").joinpath("schema.sql").read_text(encoding="utf-8")


def migrate(db: sqlite3.Connection, path: str, *, now: float) -> None:
    """Bring a store of any version up to ``SCHEMA_VERSION``."""
    found = int(db.execute("PRAGMA user_version").fetchone()[0])
    for version in range(found + 1, SCHEMA_VERSION + 1):
        log.info("%s: schema version %d becomes %d", path, version - 1, version)
        db.execute("BEGIN IMMEDIATE")
        try:
            for statement in _statements(version):
                db.execute(statement, {"now": now} if ":now" in statement else {})
            if version == 2:
                _rewrite(db, path)
            db.execute(f"PRAGMA user_version = {version}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
    if db.execute("PRAGMA auto_vacuum").fetchone()[0] != INCREMENTAL:
        _make_shrinkable(db, path)


def _statements(version: int) -> Iterator[str]:
    """Yield the statements of a step one by one: ``executescript`` would commit after each of them."""
    text = files("agl.store").joinpath(f"migrate_to_{version}.sql").read_text(encoding="utf-8")
    statement = ""
    for line in text.splitlines():
        if not statement and line.startswith("--"):
            continue
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _rewrite(db: sqlite3.Connection, path: str) -> None:
    """Write the JSON of version 1 as version 2 does: token ids packed, long texts apart, no ``MARK`` of a user's."""
    _rewrite_table(db, path, "rollout", "position", ("task", "metadata"))
    _rewrite_table(db, path, "resources", "version", ("resources",))
    _rewrite_table(db, path, "span", "position", ("attributes", "events", "resource"))


def _rewrite_table(db: sqlite3.Connection, path: str, table: str, key: str, columns: tuple[str, ...]) -> None:
    total = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    rewritten = _with_packed if table == "span" else _without_packed
    changed = (*columns, "packed") if table == "span" else columns
    write = f"UPDATE {table} SET {', '.join(f'{column} = ?' for column in changed)} WHERE {key} = ?"
    read = (
        f"SELECT {key}, {', '.join(columns)} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT {ROWS_AT_ONCE}"
    )
    done, after = 0, -1
    while rows := db.execute(read, (after,)).fetchall():
        affected = [row for row in rows if any(text is not None and _changes(text) for text in row[1:])]
        new = rewritten(db, [row[1:] for row in affected])
        db.executemany(write, [(*values, row[0]) for values, row in zip(new, affected, strict=True)])
        after = rows[-1][0]
        done += len(rows)
        if done % ROWS_A_REPORT == 0:
            log.info("%s: %d of %d rows of %s are rewritten", path, done, total, table)


def _changes(text: str) -> bool:
    return has_marks(text) or any(key in text for key in PACKED_KEYS)


def _without_packed(db: sqlite3.Connection, rows: Sequence[tuple[str | None, ...]]) -> list[list[Any]]:
    stowed = iter(stow(db, [_value(text) for row in rows for text in row]))
    return [[_text(text, next(stowed)) for text in row] for row in rows]


def _with_packed(db: sqlite3.Connection, rows: Sequence[tuple[str | None, ...]]) -> list[list[Any]]:
    """Rewrite rows whose first column holds a span's attributes; their packed values come last."""
    found: list[dict[str, Any]] = [_value(row[0]) for row in rows]
    packs = [pack(attributes) for attributes in found]
    values: list[Any] = []
    for row, attributes, (places, _) in zip(rows, found, packs, strict=True):
        values.append({key: value for key, value in attributes.items() if key not in places})
        values += map(_value, row[1:])
    stowed = iter(stow(db, values))
    new: list[list[Any]] = []
    for row, attributes, (places, packed) in zip(rows, found, packs, strict=True):
        kept = next(stowed) | places
        in_order = {key: kept[key] for key in attributes}
        new.append([_text(row[0], in_order), *(_text(text, next(stowed)) for text in row[1:]), packed])
    return new


def _value(text: str | None) -> Any:
    return None if text is None else orjson.loads(text)


def _text(before: str | None, value: Any) -> str | None:
    return None if before is None else orjson.dumps(value).decode("utf-8")


def _make_shrinkable(db: sqlite3.Connection, path: str) -> None:
    """Rewrite a file of version 1, whose pages could be used again but never given back."""
    log.info("%s: is rewritten once, so that it can shrink", path)
    try:
        db.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.OperationalError as error:  # there must be room for a second copy of the file
        log.warning("%s: cannot be rewritten (%s): it works, but will not shrink", path, error)
