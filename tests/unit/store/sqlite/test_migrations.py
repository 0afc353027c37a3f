"""Older files become today's, whole or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from agl.store.sqlite.connection import APPLICATION_ID, open_database
from agl.store.sqlite.migrations import SCHEMA_VERSION, migrate

V1 = Path(__file__).parents[3] / "data" / "store_v1.sql"


@pytest.fixture
def first_version() -> Iterator[sqlite3.Connection]:
    """An empty store as version 1 made it, in memory."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(V1.read_text(encoding="utf-8"))
    db.executescript(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1;")
    yield db
    db.close()


def _shape(db: sqlite3.Connection) -> dict[str, set[tuple[object, ...]]]:
    """Tables with their columns (name, type, not null, default, key), and indexes with theirs."""
    found: dict[str, set[tuple[object, ...]]] = {}
    for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall():
        columns = db.execute(f"PRAGMA {kind}_xinfo({name})").fetchall()
        found[name] = {column[1:6] if kind == "table" else column[2:5] for column in columns}
        if kind == "index" and sql is not None:
            found[name].add((" ".join(sql.split()),))
    return found


def test_a_migrated_file_has_todays_schema(first_version: sqlite3.Connection) -> None:
    migrate(first_version, "old", now=5.0)
    fresh = open_database(":memory:", now=1.0)
    assert _shape(first_version) == _shape(fresh)
    assert first_version.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
    fresh.close()


def test_a_step_that_fails_leaves_the_version_before(first_version: sqlite3.Connection) -> None:
    first_version.execute("CREATE TABLE blob_content (x)")  # the step's own CREATE TABLE will be refused
    before = _shape(first_version)
    with pytest.raises(sqlite3.OperationalError, match="blob_content already exists"):
        migrate(first_version, "old", now=5.0)
    assert _shape(first_version) == before
    assert first_version.execute("PRAGMA user_version").fetchone()[0] == 1


def test_todays_file_is_left_alone(first_version: sqlite3.Connection) -> None:
    migrate(first_version, "old", now=5.0)
    changes = first_version.total_changes
    migrate(first_version, "old", now=6.0)
    assert first_version.total_changes == changes
