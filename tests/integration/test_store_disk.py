"""What the disk can do to a store: fill up, refuse, or lose the process in the middle of a copy."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agl.errors import StoreError
from agl.store.paging import iter_rollouts
from agl.store.sqlite import SqliteLightningStore
from agl.types import RolloutRequest

SAY = """
import asyncio, resource, sys
from agl.errors import StoreError
from agl.store.sqlite import SqliteLightningStore
from agl.types import RolloutRequest

TASK = [number / 7 for number in range(1000)]  # 18 KB that are not stored apart

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

async def enqueue(store):
    rollout = await store.enqueue_rollout(RolloutRequest(task=TASK))
    say("enqueued", rollout.rollout_id)
"""
FULL = (
    SAY
    + """
async def main(path):
    async with SqliteLightningStore(path) as store:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        for _ in range(3):  # it stays full
            try:
                while True:
                    await asyncio.gather(*(enqueue(store) for _ in range(4)))
            except StoreError as error:
                say("refused", type(error).__name__, error)
        say("counted", (await store.statistics())["rollouts"]["pending"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        for _ in range(100):
            await enqueue(store)

asyncio.run(main(sys.argv[1]))
"""
)
COPY = (
    SAY
    + """
async def main(path, target):
    async with SqliteLightningStore(path) as store:
        say("begin")
        copy = asyncio.create_task(store.backup(target))
        while not copy.done():
            await enqueue(store)
        await copy

asyncio.run(main(*sys.argv[1:]))
"""
)


def filled_up(path: Path) -> list[str]:
    """Write to a store until its files may grow no further, and on when they may; return what the process said."""
    command = [sys.executable, "-c", FULL, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


async def test_a_full_disk_loses_nothing_acknowledged_and_the_store_works_on(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    said = [line.split(maxsplit=1) for line in filled_up(path)]
    refusals = [rest for kind, rest in said if kind == "refused"]
    assert len(refusals) == 3
    for words in refusals:
        assert words.startswith("StoreUnavailableError")
        assert "nothing of this call is stored" in words
    acknowledged = {rest for kind, rest in said if kind == "enqueued"}
    assert len(acknowledged) > 100 + 20
    (counted,) = [int(rest) for kind, rest in said if kind == "counted"]
    async with SqliteLightningStore(str(path)) as store:
        found = {one.rollout_id async for one in iter_rollouts(store)}
        assert (await store.enqueue_rollout(RolloutRequest(task=1))).status == "pending"
    # A refused call has stored nothing; calls of its batch that were refused with it were not acknowledged either.
    assert found == acknowledged
    assert counted == len(acknowledged) - 100
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    db.close()


@pytest.fixture
async def store_file(tmp_path: Path) -> Path:
    """A store of some 30 MB."""
    path = tmp_path / "store.sqlite"
    task = [number / 7 for number in range(1000)]
    async with SqliteLightningStore(str(path)) as store:
        for _ in range(15):
            await store.enqueue_many_rollouts([RolloutRequest(task=task) for _ in range(100)])
    return path


def copied(path: Path, target: Path, seconds: float | None) -> tuple[list[str], float]:
    """Copy in a process that also writes, killed that long after it began; return the ids it acknowledged, and how long
    it went on.
    """
    command = [sys.executable, "-c", COPY, str(path), str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begin\n"
        begin = time.monotonic()
        lines: list[str] = []
        while seconds is None or time.monotonic() - begin < seconds:
            line = process.stdout.readline()
            if not line:
                break
            lines.append(line)
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.readlines()
    ids = [line.split()[1] for line in lines if line.endswith("\n")]
    return ids, time.monotonic() - begin


async def test_a_copy_killed_at_any_moment_is_whole_or_not_there(tmp_path: Path, store_file: Path) -> None:
    acknowledged, whole = copied(store_file, tmp_path / "first", None)
    assert is_whole(tmp_path / "first")
    for number, share in enumerate([0.05, 0.3, 0.6, 0.9]):
        target = tmp_path / f"copy-{number}"
        acknowledged += copied(store_file, target, share * whole)[0]
        if target.exists():
            assert is_whole(target)
        async with SqliteLightningStore(str(store_file)) as store:
            found = {one.rollout_id async for one in iter_rollouts(store)}
            assert found >= set(acknowledged)
            if not target.exists():
                await store.backup(str(target))  # over what the killed one left
        assert is_whole(target)
        assert not list(tmp_path.glob("copy-*.partial*"))


def is_whole(path: Path) -> bool:
    db = sqlite3.connect(path)
    whole = db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    count = db.execute("SELECT count(*) FROM rollout").fetchone()[0]
    db.close()
    return whole and count >= 1500


@pytest.mark.parametrize("place", ["a file/store.sqlite", "/proc/store.sqlite", "/proc/folder/store.sqlite"])
async def test_a_place_that_cannot_be_written_is_refused_with_the_way_out(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(StoreError, match=r"cannot be opened for writing: .*read_only=True"):
        await SqliteLightningStore(str(tmp_path / place)).open()
