"""A copy is complete, of one moment, another store, and never half there."""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from agl.errors import StoreError
from agl.store.sqlite import SqliteLightningStore
from agl.store.sqlite.backup import back_up_bytes, back_up_file, read_served
from agl.store.sqlite.connection import open_database
from agl.store.sqlite.store import SqliteStore
from agl.types import RolloutQuery, RolloutRequest, Span, SpanQuery

LONG = "a long text, stored apart " * 100


def nothing() -> None:
    pass


def copy_file(folder: Path, go_on: Callable[[], None] = nothing) -> None:
    read = partial(read_served, str(folder / "store.sqlite"))
    back_up_file(read, str(folder / "copy"), now=2.0, go_on=go_on)


@pytest.mark.parametrize("path", [":memory:", "store.sqlite"])
async def test_a_copy_is_a_store_of_its_own(tmp_path: Path, path: str) -> None:
    copy = tmp_path / "copies" / "copy.sqlite"
    copy.parent.mkdir()
    async with SqliteStore(path if path == ":memory:" else str(tmp_path / path)) as store:
        made = await store.enqueue_rollout(RolloutRequest(task=LONG))
        await store.add_span(
            Span(span_id="1", trace_id="2", name="s", start_time_ns=1, attributes={"a": LONG})
        )
        await store.backup(str(copy))
        await store.enqueue_rollout(RolloutRequest(task="later"))
        original = await store.health()
    assert [one.name for one in copy.parent.iterdir()] == ["copy.sqlite"]
    async with SqliteLightningStore(str(copy)) as other:
        assert (await other.query_rollouts()).items == [made]
        assert [one.attributes for one in (await other.query_spans(SpanQuery())).items] == [{"a": LONG}]
        assert (await other.health())["identity"] != original["identity"]


async def test_a_copy_is_of_one_moment_while_writers_go_on(tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    filler = list(range(2000))  # 9 KB that are not stored apart
    async with SqliteLightningStore(str(tmp_path / "store.sqlite")) as store:
        await store.enqueue_many_rollouts([RolloutRequest(task=filler) for _ in range(1000)])
        backup = asyncio.create_task(store.backup(str(copy)))
        number = 0
        while not backup.done():
            await store.enqueue_many_rollouts(
                [RolloutRequest(rollout_id=f"{number}-{part}", task=1) for part in "ab"]
            )
            number += 1
        await backup
        assert number > 1
    db = sqlite3.connect(copy)
    assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    pairs = db.execute(
        "SELECT substr(rollout_id, 1, instr(rollout_id, '-') - 1) AS pair, count(*) FROM rollout WHERE task = '1'"
        " GROUP BY pair"
    ).fetchall()
    assert all(count == 2 for _, count in pairs), "a call is in the copy whole or not at all"
    db.close()


async def test_a_copy_overwrites_nothing(tmp_path: Path) -> None:
    async with SqliteLightningStore(str(tmp_path / "store.sqlite")) as store:
        for taken in (tmp_path / "store.sqlite", tmp_path / "other"):
            taken.touch()
            with pytest.raises(StoreError, match="exists: name a new file"):
                await store.backup(str(taken))
        with pytest.raises(StoreError, match="cannot be written"):
            await store.backup(str(tmp_path / "no folder" / "copy"))
        assert (await store.health())["status"] == "ok"
    assert (tmp_path / "other").read_bytes() == b""


def test_two_copies_do_not_write_into_each_other(tmp_path: Path) -> None:
    open_database(str(tmp_path / "store.sqlite"), now=1.0).close()
    with (tmp_path / "copy.partial").open("w") as unfinished:
        fcntl.flock(unfinished, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another copy is being written"):
            back_up_file(
                partial(read_served, str(tmp_path / "store.sqlite")),
                str(tmp_path / "copy"),
                now=2.0,
                go_on=nothing,
            )


def test_what_a_killed_copy_left_is_taken_over(tmp_path: Path) -> None:
    open_database(str(tmp_path / "store.sqlite"), now=1.0).close()
    (tmp_path / "copy.partial").write_bytes(b"half a database" * 1000)
    (tmp_path / "copy.partial-journal").write_bytes(b"its journal")
    copy_file(tmp_path)
    db = sqlite3.connect(tmp_path / "copy")
    assert db.execute("SELECT created_at FROM identity").fetchall() == [(2.0,)]
    assert db.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
    db.close()
    assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith("copy")) == ["copy"]


def test_a_copy_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    db = open_database(str(tmp_path / "store.sqlite"), now=1.0)

    def give_up() -> None:
        raise StoreError("given up")

    with pytest.raises(StoreError, match="given up"):
        back_up_file(
            partial(read_served, str(tmp_path / "store.sqlite")),
            str(tmp_path / "copy"),
            now=2.0,
            go_on=give_up,
        )
    assert not list(tmp_path.glob("copy*"))
    db.close()
    with pytest.raises(StoreError):
        back_up_bytes(b"no database", str(tmp_path / "copy"), now=2.0)
    assert not list(tmp_path.glob("copy*"))


async def test_a_cancelled_copy_leaves_nothing_and_the_store_serves_on(tmp_path: Path) -> None:
    async with SqliteLightningStore(str(tmp_path / "store.sqlite")) as store:
        backup = asyncio.create_task(store.backup(str(tmp_path / "copy")))
        await asyncio.sleep(0)
        backup.cancel()
        with pytest.raises(asyncio.CancelledError):
            await backup
        assert not list(tmp_path.glob("copy.*"))
        assert (await store.query_rollouts(RolloutQuery())).items == []
