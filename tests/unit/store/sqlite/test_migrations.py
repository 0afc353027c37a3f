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
from agl.store.sqlite.connection import APPLICATION_ID, connect, open_database
from agl.store.sqlite.migrations import SCHEMA_VERSION, migrate
from agl.types import RolloutConfig, SpanQuery

SECOND_VERSION = Path(__file__).parents[3] / "data" / "store_v2.sql"


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


async def test_what_waits_in_a_file_of_version_2_can_be_claimed(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    db = connect(str(path))
    db.executescript(SECOND_VERSION.read_text(encoding="utf-8"))
    db.executescript(
        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 2;"
        "INSERT INTO identity VALUES ('6e1e2f0c-0000-4000-8000-000000000002', 1.0);"
    )
    config = '{"timeout_seconds":null,"unresponsive_seconds":null,"max_attempts":3,"retry_on":["failed"]}'
    for position, (name, status, tried, place) in enumerate(
        [("retried", "requeuing", 1, 9), ("new", "pending", 0, 2), ("over", "failed", 3, None)], start=1
    ):
        db.execute(
            "INSERT INTO rollout VALUES (?, ?, NULL, '0', 'train', NULL, NULL, ?, '{}', 0, ?, NULL, '{}', NULL, 1.0,"
            " NULL, ?, ?, ?)",
            (position, name, config, status, 5.0 if place is None else None, tried, place),
        )
    db.commit()
    db.close()
    async with SqliteLightningStore(str(path)) as store:
        claimed = await store.dequeue_many_rollouts(worker_id="w", limit=9)
        assert [(one.rollout.rollout_id, one.attempt.sequence_id) for one in claimed] == [
            ("new", 1),
            ("retried", 2),
        ]
        assert {one.rollout.config for one in claimed} == {
            RolloutConfig(max_attempts=3, retry_on=("failed",))
        }
        assert (await store.get_rollout_by_id("over")).retry_at is None


def test_a_migrated_file_of_version_2_has_todays_schema() -> None:
    second, fresh = connect(":memory:"), open_database(":memory:", now=1.0)
    second.executescript(f"{SECOND_VERSION.read_text(encoding='utf-8')};PRAGMA user_version = 2;")
    migrate(second, "old", now=5.0)
    assert _shape(second) == _shape(fresh)
    second.close()
    fresh.close()
