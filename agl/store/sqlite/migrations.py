"""Older files become files of today's schema when they are opened, one version a step.

A step is one transaction, its version number included: whatever ends the process in the middle, the file is still whole
and of the version before, so no copy of it is made first.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from importlib.resources import files

log = logging.getLogger(__name__)
SCHEMA_VERSION = 2


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
            db.execute(f"PRAGMA user_version = {version}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


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
