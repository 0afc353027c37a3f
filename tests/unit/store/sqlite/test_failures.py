"""SQLite's refusals in words."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from agl.errors import InvalidRequestError, StoreError, StoreUnavailableError
from agl.store.sqlite.failures import store_error
from agl.store.sqlite.store import SqliteStore
from agl.types import RolloutRequest


def refusal(db: sqlite3.Connection, sql: str, *values: object) -> Exception:
    with pytest.raises((sqlite3.Error, OverflowError)) as caught:
        db.execute(sql, values)
    error = store_error(caught.value)
    assert error.__cause__ is caught.value
    return error


def test_each_refusal_says_whether_to_try_again() -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    error = refusal(db, "SELECT ?", 2**70)
    assert isinstance(error, InvalidRequestError)
    error = refusal(db, "SELECT * FROM none")
    assert type(error) is StoreError
    assert "no such table" in str(error)
    db.execute("PRAGMA max_page_count = 2")
    db.execute("CREATE TABLE t (x)")
    error = refusal(db, "INSERT INTO t VALUES (zeroblob(100000))")
    assert isinstance(error, StoreUnavailableError)
    assert "the disk is full" in str(error)
    db.execute("PRAGMA query_only = ON")
    error = refusal(db, "CREATE TABLE u (x)")
    assert isinstance(error, StoreUnavailableError)
    assert "cannot be written" in str(error)
    other = ValueError("x")
    assert store_error(other) is other


@pytest.mark.parametrize("path", [":memory:", "store.sqlite"])
async def test_a_full_disk_stores_nothing_halfway_and_is_no_end(tmp_path: Path, path: str) -> None:
    where = path if path == ":memory:" else str(tmp_path / path)
    async with SqliteStore(where) as store:
        kept = await store.enqueue_rollout(RolloutRequest(task="kept"))

        async def limit(pages: int) -> None:
            db = store._access._db
            assert db is not None
            await store._access.write(lambda transaction: transaction.row(f"PRAGMA max_page_count = {pages}"))

        await limit(1)  # no more than there are
        tasks = [list(range(number, number + 3000)) for number in range(50)]  # no text that is stored apart
        with pytest.raises(StoreUnavailableError, match="the disk is full: nothing of this call is stored"):
            await store.enqueue_many_rollouts([RolloutRequest(task=task) for task in tasks])
        assert [one.rollout_id for one in (await store.query_rollouts()).items] == [kept.rollout_id]
        await limit(1_000_000)
        assert len(await store.enqueue_many_rollouts([RolloutRequest(task=task) for task in tasks])) == 50
        check = await store._access.read(lambda db: db.execute("PRAGMA integrity_check").fetchone())
        assert check == ("ok",)
