"""One client object, opened once, used by its own event loop, by threads with loops of their own and by forks.

Run as a program with the URL of a store. Prints the rollouts that each user of the client finished, as lines of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import traceback

from agl.store.client import LightningStoreClient
from agl.types import RolloutRequest, Span

CHILDREN = THREADS = 4
ROLLOUTS = 40


async def work(store: LightningStoreClient, name: str) -> list[str]:
    """Enqueue, claim, write and finish rollouts of a run of its own, ten at once; return their ids."""

    async def one(number: int) -> str:
        await store.enqueue_rollout(RolloutRequest(task=f"{name} {number}", run_id=name))
        held = await store.dequeue_rollout(worker_id=name, run_id=name, wait_seconds=30)
        assert held is not None
        key = {"rollout_id": held.rollout.rollout_id, "attempt_id": held.attempt.attempt_id}
        stored = await store.add_span(
            Span(span_id=key["attempt_id"], trace_id=name, name=name, start_time_ns=1, **key)
        )
        assert (stored.name, stored.sequence_id) == (name, 1)
        done = await store.update_attempt(*key.values(), status="succeeded", reward=number / 2)
        assert (done.rollout.run_id, done.rollout.reward) == (name, number / 2)
        return key["rollout_id"]

    finished: list[str] = []
    for first in range(0, ROLLOUTS, 10):
        finished += await asyncio.gather(*(one(number) for number in range(first, first + 10)))
    return finished


def say(name: str, finished: list[str]) -> None:
    """Print what was finished in one short write, which other processes' lines cannot tear apart."""
    os.write(1, json.dumps([name, finished]).encode() + b"\n")


def forked(store: LightningStoreClient, name: str) -> int:
    """Use the client in a forked child; return its process id."""
    pid = os.fork()
    if pid == 0:
        try:
            say(name, asyncio.run(work(store, name)))
            os._exit(0)
        except Exception:  # noqa: BLE001 - a fork must never go on as its parent
            traceback.print_exc()
            os._exit(1)
    return pid


async def main(url: str) -> int:
    """Share the client with all; return how many children failed."""
    async with LightningStoreClient(url) as store:
        poll = asyncio.create_task(store.dequeue_rollout(worker_id="parent", run_id="poll", wait_seconds=60))
        await store.statistics()  # connections are open and one is in use: the children inherit them
        children = [forked(store, f"child-{number}") for number in range(CHILDREN)]
        threads = [
            threading.Thread(target=lambda name=name: say(name, asyncio.run(work(store, name))))
            for name in (f"thread-{number}" for number in range(THREADS))
        ]
        for thread in threads:
            thread.start()
        say("parent", await work(store, "parent"))
        for thread in threads:
            await asyncio.to_thread(thread.join)
        failed = 0
        for pid in children:
            failed += (await asyncio.to_thread(os.waitpid, pid, 0))[1] != 0
        last = await store.enqueue_rollout(RolloutRequest(task="last", run_id="poll"))
        held = await poll
        assert held is not None
        assert held.rollout.rollout_id == last.rollout_id
        return failed


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
