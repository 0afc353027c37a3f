"""A runner in a process of its own: Ctrl-C ends it in time, and its work goes on elsewhere."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

from agl.runners.runner import LitAgentRunner
from agl.store.sqlite import SqliteLightningStore

PROGRAM = """
import asyncio, sys, threading
from agl.runners.inline import InlineRunners
from agl.store.sqlite import SqliteLightningStore
from agl.types import RolloutRequest

def stuck(task):
    print("in hand", flush=True)
    threading.Event().wait()

async def main():
    async with SqliteLightningStore(sys.argv[1]) as store:
        await store.enqueue_many_rollouts([RolloutRequest(task=n, rollout_id=f"r{n}") for n in range(2)])
        async with InlineRunners().running(store, stuck):
            await asyncio.Event().wait()

asyncio.run(main())
"""


def test_ctrl_c_ends_a_runner_with_stuck_threads_and_another_process_does_the_work(tmp_path: Path) -> None:
    file = str(tmp_path / "store.sqlite")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, file], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == [b"in hand\n"] * 2
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - begin < 5
    assert process.returncode != 0
    assert b"cannot be stopped" in errors
    assert asyncio.run(finish(file)) == [("succeeded", 0.0, 2), ("succeeded", 1.0, 2)]


async def finish(file: str) -> list[tuple[str, float | None, int]]:
    """Execute what the file still has to do; return how both rollouts ended."""

    async def agent(task: int) -> float:
        return float(task)

    async with SqliteLightningStore(file) as store:
        stop = asyncio.Event()
        running = asyncio.create_task(LitAgentRunner(store, agent).run(stop))
        rollouts = await store.wait_for_rollouts(["r0", "r1"], timeout_seconds=20)
        stop.set()
        await running
        return [(rollout.status, rollout.reward, rollout.num_attempts) for rollout in rollouts]
