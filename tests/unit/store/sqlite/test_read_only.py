"""Reading a store's file leaves no trace, whoever has it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest

from agl.errors import AccessDeniedError, StoreError, StoreUnavailableError
from agl.store.base import LightningStore
from agl.store.sqlite import SqliteLightningStore
from agl.store.sqlite.connection import APPLICATION_ID
from agl.store.sqlite.read_only import MAX_TRIES, read_file, require_readable
from agl.types import RolloutRequest, Span, SpanQuery

LONG = "a long text, stored apart " * 100


async def fill(store: LightningStore) -> None:
    await store.add_run(name="x", run_id="run")
    held = await store.start_rollout(RolloutRequest(task=LONG, rollout_id="ro"), worker_id="w")
    await store.add_span(
        Span(
            span_id="1",
            trace_id="2",
            name="s",
            start_time_ns=1,
            attempt_id=held.attempt.attempt_id,
            attributes={"a": LONG, "agl.prompt_token_ids": "AQAAAA=="},
        )
    )


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {one.name: (one.stat().st_mtime_ns, one.read_bytes()) for one in folder.iterdir()}


async def test_a_finished_file_is_read_without_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "store ?#%.sqlite"
    async with SqliteLightningStore(str(path)) as store:
        await fill(store)
        expected = (await store.query_rollouts()).items, (await store.query_spans(SpanQuery(name="s"))).items
        statistics, identity = await store.statistics(), (await store.health())["identity"]
    Path(f"{path}.lock").unlink()
    before = files(tmp_path)
    async with SqliteLightningStore(str(path), read_only=True) as store:
        assert (
            (await store.query_rollouts()).items,
            (await store.query_spans(SpanQuery(name="s"))).items,
        ) == expected
        assert await store.statistics() == statistics
        assert (await store.health())["identity"] == identity
        await store.backup(str(tmp_path / "copy"))
    (tmp_path / "copy").unlink()
    assert files(tmp_path) == before


async def test_every_change_is_denied(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    async with SqliteLightningStore(path) as store:
        await fill(store)
    async with SqliteLightningStore(path, read_only=True) as store:
        span = Span(span_id="2", trace_id="2", name="s", start_time_ns=1)
        changes = [
            store.enqueue_rollout(RolloutRequest(task=1)),
            store.dequeue_rollout(worker_id="w", wait_seconds=60),
            store.cancel_rollout("ro"),
            store.add_span(span),
            store.add_resources({"n": 1}),
            store.register_worker("w"),
            store.add_run(name="y"),
            store.add_metrics("run", 1, {"reward": 1.0}),
            store.delete_run("run"),
            store.delete_spans(finished_before=1e12),
            store.sweep(),
        ]
        for change in changes:
            with pytest.raises(AccessDeniedError, match="open for reading only"):
                await change
    with pytest.raises(StoreUnavailableError):
        await store.query_rollouts()
    with pytest.raises(StoreUnavailableError):
        await store.enqueue_rollout(RolloutRequest(task=1))


async def test_a_served_file_is_read_as_it_goes_on(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    async with SqliteLightningStore(path) as store:
        await fill(store)
        async with SqliteLightningStore(path, read_only=True) as view, asyncio.timeout(30):
            (rollout,) = (await view.query_rollouts()).items
            assert (rollout.rollout_id, rollout.task) == ("ro", LONG)
            assert await view.wait_for_rollouts(["ro"], timeout_seconds=0.0) == []
            wait = asyncio.create_task(view.wait_for_rollouts(["ro"]))
            attempt = await view.get_latest_attempt("ro")
            assert attempt is not None
            await store.update_attempt("ro", attempt.attempt_id, status="succeeded", reward=1.0)
            assert [one.reward for one in await wait] == [1.0]
            await store.close()
            assert [one.reward for one in (await view.query_rollouts()).items] == [1.0]
            await store.open()
            await store.enqueue_rollout(RolloutRequest(task=2))
            assert [one.task for one in (await view.query_rollouts()).items] == [LONG, 2]


async def test_what_a_killed_owner_left_in_its_log_is_read(tmp_path: Path) -> None:
    path, left = tmp_path / "store.sqlite", tmp_path / "left"
    left.mkdir()
    async with SqliteLightningStore(str(path)) as store:
        await fill(store)
        for one in tmp_path.glob("store.sqlite*"):
            shutil.copy(one, left)  # as a kill would leave them
    assert (left / "store.sqlite-wal").stat().st_size > 0
    async with SqliteLightningStore(str(left / "store.sqlite"), read_only=True) as view:
        assert [one.task for one in (await view.query_rollouts()).items] == [LONG]


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store at"):
        require_readable(str(tmp_path / "none"))
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(StoreError, match="not a database"):
        require_readable(str(tmp_path / "text"))
    old = sqlite3.connect(tmp_path / "old")
    old.executescript(
        f"CREATE TABLE rollout (x); PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1;"
    )
    old.close()
    with pytest.raises(StoreError, match="open it once for writing"):
        require_readable(str(tmp_path / "old"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["old", "text"]


def test_a_file_that_changes_under_a_read_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE t (x)")
    db.close()
    reads = 0

    def change_while_reading(db: sqlite3.Connection) -> int:
        nonlocal reads
        reads += 1
        if reads <= changes:
            other = sqlite3.connect(path)
            other.execute("INSERT INTO t SELECT zeroblob(10000)")
            other.commit()
            other.close()
        return db.execute("SELECT count(*) FROM t").fetchone()[0]

    changes = 2
    assert read_file(str(path), change_while_reading) == 2
    assert reads == 3
    changes = 1000
    with pytest.raises(StoreUnavailableError, match=f"changed hands {MAX_TRIES} times"):
        read_file(str(path), change_while_reading)
