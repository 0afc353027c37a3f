"""Older files become today's, whole or not at all."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_v1 import write_store_v1

from agl.store.paging import iter_rollouts, iter_spans
from agl.store.sqlite import SqliteLightningStore
from agl.store.sqlite.connection import connect, open_database
from agl.store.sqlite.migrations import SCHEMA_VERSION, migrate
from agl.types import SpanQuery


@pytest.fixture
def first_version() -> Iterator[sqlite3.Connection]:
    """An empty store as version 1 made it, in memory."""
    db = connect(":memory:")
    write_store_v1(db, num_spans=0)
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


async def test_nothing_of_an_old_file_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store.sqlite"
    db = sqlite3.connect(path, isolation_level=None)
    records = write_store_v1(db, num_spans=2000)
    db.close()
    before = path.stat().st_size
    caplog.set_level(logging.INFO)
    async with SqliteLightningStore(str(path)) as store:
        assert "schema version 1 becomes 2" in caplog.text
        assert (await store.health())["identity"] == "6e1e2f0c-0000-4000-8000-000000000001"
        assert [one async for one in iter_rollouts(store)] == records.rollouts
        assert [one async for one in iter_spans(store, SpanQuery())] == records.spans + records.strays
        assert (await store.list_resources()).items == records.resources
        wanted = records.spans[100].attributes  # every hundredth has all there is
        for key, value in wanted.items():
            found = [one async for one in iter_spans(store, SpanQuery(attributes={key: value}))]
            assert found == [
                one for one in records.spans + records.strays if one.attributes.get(key) == value
            ]
        assert await store.delete_spans(finished_before=1e12) == len(records.spans) + len(records.strays)
        assert path.stat().st_size < before / 2
    again = sqlite3.connect(path)
    assert again.execute("PRAGMA auto_vacuum").fetchone()[0] == 2
    assert again.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    again.close()


async def test_a_migrated_file_is_smaller(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    db = sqlite3.connect(path, isolation_level=None)
    write_store_v1(db, num_spans=2000)
    db.close()
    before = path.stat().st_size
    open_database(str(path), now=1.0).close()
    assert path.stat().st_size < before / 2  # the prompt is in each span
