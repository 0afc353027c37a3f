"""Many server processes on one MongoDB database: nothing is handed out twice or lost, also when some are killed."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from mongo_server import MongoServer

from agl.store.mongo import MongoLightningStore
from agl.store.paging import iter_attempts, iter_rollouts
from agl.types import AttemptQuery, RolloutConfig, RolloutRequest

NUM_PROCESSES = 8
NUM_ROLLOUTS = 64
NUM_KILLED = 3
WORKER = """
import asyncio, sys
from agl.errors import ConflictError
from agl.store.mongo import MongoLightningStore

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

async def main(url, name):
    async with MongoLightningStore(url, timeout_seconds=60, journal=False) as store:
        say("open", (await store.health())["identity"])
        while True:
            claimed = await store.dequeue_many_rollouts(worker_id=name, limit=2, wait_seconds=1.0)
            for held in claimed:
                say("claimed", held.rollout.rollout_id, held.attempt.sequence_id, held.attempt.attempt_id)
            for held in claimed:
                reward = float(held.rollout.task)
                try:
                    await store.update_attempt(
                        held.rollout.rollout_id, held.attempt.attempt_id, status="succeeded", reward=reward
                    )
                except ConflictError:
                    say("late", held.rollout.rollout_id)
                else:
                    say("finished", held.rollout.rollout_id, reward)
            if not claimed:
                counts = (await store.statistics())["rollouts"]
                if not sum(counts[one] for one in ("pending", "preparing", "running", "requeuing")):
                    return

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def server() -> Iterator[MongoServer]:
    """A server of its own: its 32 connections are all needed."""
    made = MongoServer(connections_per_client=2)
    yield made
    made.stop()


async def said_by(process: asyncio.subprocess.Process, kill_after: float | None) -> list[list[str]]:
    """Return the lines that a process said; one to be killed is killed that long after its first claim."""
    assert process.stdout is not None
    lines: list[list[str]] = []
    until: float | None = None
    while True:
        try:
            async with asyncio.timeout(None if until is None else max(until - time.monotonic(), 0.0)):
                line = await process.stdout.readline()
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
            until = None
            continue
        if not line.endswith(b"\n"):
            break
        lines.append(line.decode().split())
        if kill_after is not None and lines[-1][0] == "claimed":
            until, kill_after = time.monotonic() + kill_after, None
    await process.wait()
    return lines


async def test_eight_processes_claim_each_rollout_once_and_a_killed_one_loses_none(
    server: MongoServer,
) -> None:
    config = RolloutConfig(unresponsive_seconds=4.0, max_attempts=20)
    requests = [
        RolloutRequest(task=number, rollout_id=f"ro-{number}", config=config)
        for number in range(NUM_ROLLOUTS)
    ]
    chance = random.Random(7)
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", WORKER, server.url, f"w{number}", stdout=subprocess.PIPE
        )
        for number in range(NUM_PROCESSES)
    ]
    kills = [chance.uniform(0.0, 0.5) if number < NUM_KILLED else None for number in range(NUM_PROCESSES)]
    async with MongoLightningStore(server.url, timeout_seconds=60, journal=False) as store:
        identity = (await store.health())["identity"]
        await store.enqueue_many_rollouts(requests)
        said = await asyncio.gather(
            *(said_by(process, kill) for process, kill in zip(processes, kills, strict=True))
        )
        rollouts = {one.rollout_id: one async for one in iter_rollouts(store)}
        attempts = [one async for one in iter_attempts(store, AttemptQuery())]
    assert [process.returncode for process in processes[NUM_KILLED:]] == [0] * (NUM_PROCESSES - NUM_KILLED)
    assert {words[1] for lines in said for words in lines if words[0] == "open"} == {identity}
    claims = [tuple(words[1:3]) for lines in said for words in lines if words[0] == "claimed"]
    assert len(claims) == len(set(claims)), "an attempt was handed out twice"
    finished = [(words[1], float(words[2])) for lines in said for words in lines if words[0] == "finished"]
    assert len(finished) == len({rollout_id for rollout_id, _ in finished}), "a rollout finished twice"
    assert len(rollouts) == NUM_ROLLOUTS
    assert all(rollouts[rollout_id].reward == reward for rollout_id, reward in finished)
    assert {one.status for one in rollouts.values()} == {"succeeded"}
    assert [rollouts[f"ro-{number}"].reward for number in range(NUM_ROLLOUTS)] == list(range(NUM_ROLLOUTS))
    by_rollout: dict[str, list[tuple[int, str]]] = {}
    for attempt in attempts:
        by_rollout.setdefault(attempt.rollout_id, []).append((attempt.sequence_id, attempt.status))
    for tries in by_rollout.values():
        numbers = [number for number, _ in tries]
        assert numbers == list(range(1, len(tries) + 1))
        assert [status for _, status in tries if status == "succeeded"] == ["succeeded"]


async def test_processes_that_open_a_new_namespace_at_once_agree_on_its_identity(server: MongoServer) -> None:
    stores = [
        MongoLightningStore(server.url, prefix="new_", timeout_seconds=60, journal=False) for _ in range(4)
    ]
    try:
        await asyncio.gather(*(store.open() for store in stores))
        identities = {(await store.health())["identity"] for store in stores}
    finally:
        await asyncio.gather(*(store.close() for store in stores))
    assert len(identities) == 1


async def test_waiters_hear_of_what_other_processes_write(server: MongoServer) -> None:
    one = MongoLightningStore(server.url, timeout_seconds=60, journal=False)
    other = MongoLightningStore(server.url, timeout_seconds=60, journal=False)
    async with one, other:
        claim = asyncio.create_task(one.dequeue_rollout(worker_id="w", wait_seconds=60))
        await one.statistics()
        await other.enqueue_rollout(RolloutRequest(task="t", rollout_id="ro"))
        held = await asyncio.wait_for(claim, 60)
        assert held is not None
        end = asyncio.create_task(other.wait_for_rollouts(["ro"], timeout_seconds=60))
        await other.statistics()
        await one.update_attempt("ro", held.attempt.attempt_id, status="succeeded")
        assert [rollout.status for rollout in await asyncio.wait_for(end, 60)] == ["succeeded"]
