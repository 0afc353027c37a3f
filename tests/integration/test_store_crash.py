"""`kill -9` of the process that owns a store file loses nothing that the store has acknowledged."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agl.errors import StoreError
from agl.store.paging import iter_attempts, iter_rollouts, iter_spans
from agl.store.sqlite import SqliteLightningStore
from agl.types import AttemptQuery, SpanQuery

WRITER = """
import asyncio, sys
from agl.store.sqlite import SqliteLightningStore
from agl.types import RolloutRequest, Span

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

async def caller(store, name):
    for number in range(1_000_000):
        rollout = await store.enqueue_rollout(RolloutRequest(task=number))
        say("enqueued", rollout.rollout_id)
        held = await store.dequeue_rollout(worker_id=name)
        say("claimed", held.rollout.rollout_id, held.attempt.attempt_id)
        key = {"rollout_id": held.rollout.rollout_id, "attempt_id": held.attempt.attempt_id}
        spans = [
            Span(span_id=f"{number:08x}{part:08x}", trace_id=name * 32, name="s", start_time_ns=1,
                 attributes={"text": "x" * 2000}, **key)
            for part in range(3)
        ]
        for span in await store.add_many_spans(spans):
            say("span", span.attempt_id, span.sequence_id)
        await store.update_attempt(*key.values(), status="succeeded", reward=number / 2)
        say("finished", held.rollout.rollout_id, number / 2)

async def main(path):
    async with SqliteLightningStore(path) as store:
        await asyncio.gather(*(caller(store, name) for name in "abcdef"))

asyncio.run(main(sys.argv[1]))
"""


def killed_after(path: Path, seconds: float) -> list[list[str]]:
    """Let a process write to the store and kill it that long after its first word; return what it acknowledged."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        killer = time.monotonic() + seconds
        words = [first]
        while time.monotonic() < killer:
            words.append(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        words += process.stdout.read().splitlines(keepends=True)
    return [line.decode().split() for line in words if line.endswith(b"\n")]


@pytest.mark.parametrize("seed", range(5))
async def test_a_killed_process_loses_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "store.sqlite"
    said = killed_after(path, random.Random(seed).uniform(0.05, 0.6))
    async with SqliteLightningStore(str(path)) as store:
        rollouts = {one.rollout_id: one async for one in iter_rollouts(store)}
        attempts = {one.attempt_id: one async for one in iter_attempts(store, AttemptQuery())}
        spans = {(one.attempt_id, one.sequence_id) async for one in iter_spans(store, SpanQuery())}
        held = await store.dequeue_many_rollouts(worker_id="after", limit=1000)
    assert len(said) > 20
    for kind, *words in said:
        if kind == "enqueued":
            assert words[0] in rollouts
        elif kind == "claimed":
            assert attempts[words[1]].rollout_id == words[0]
        elif kind == "span":
            assert (words[0], int(words[1])) in spans
        else:
            assert (rollouts[words[0]].status, rollouts[words[0]].reward) == ("succeeded", float(words[1]))
    claimed = {words[0] for kind, *words in said if kind == "claimed"}
    assert not claimed & {one.rollout.rollout_id for one in held}, "handed out again without having been lost"


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the store file open."""
    command = [sys.executable, "-c", WRITER, str(tmp_path / "store.sqlite")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()
        process.stdout.read()


async def test_a_second_process_is_told_who_owns_the_file(
    tmp_path: Path, owner: subprocess.Popen[bytes]
) -> None:
    path = str(tmp_path / "store.sqlite")
    with pytest.raises(StoreError, match=f"process {owner.pid}"):
        await SqliteLightningStore(path).open()
    owner.kill()
    assert owner.stdout is not None
    owner.stdout.read()  # until the process is gone
    owner.wait()
    async with SqliteLightningStore(path) as store:
        assert (await store.health())["status"] == "ok"
