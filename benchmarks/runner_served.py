"""Runners beside a store that is served over HTTP: `agl runner` and agentlightning's, for benchmarks/runner.py."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from store import agl_server, peer_server

from agl.store.base import LightningStore
from agl.store.client import LightningStoreClient
from agl.types import PromptTemplate, RolloutRequest

FOLDER = Path(__file__).parent
QUIET = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
"""Else the peer's import asks the internet."""


def megabytes(pid: int, name: str = "VmRSS") -> float:
    """Return a process's memory: resident now, or at its peak (``VmHWM``)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def children_of(pid: int) -> list[int]:
    """Return the process ids of its children."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def agl_runner(url: str, agent: str, concurrency: int) -> Generator[int]:
    """Run an `agl runner` with one child; yields the process id of the command."""
    target = f"agent.target={FOLDER / 'runner_agents.py'}:{agent}"
    command = [sys.executable, "-m", "agl", "runner", target, "--store-url", url]
    with subprocess.Popen(
        [*command, "--max-concurrency", str(concurrency)], stdout=subprocess.DEVNULL
    ) as process:
        try:
            yield process.pid
        finally:
            process.terminate()


async def joined(store: LightningStore) -> None:
    """Wait for a runner."""
    while not await store.get_active_workers():  # noqa: ASYNC110 - the store tells nobody
        await asyncio.sleep(0.1)


async def executed(store: LightningStore, count: int) -> float:
    """Enqueue so many rollouts; return the seconds from the first start to the last end."""
    await store.add_resources({"prompt": PromptTemplate(template="how many?")})
    requests = [RolloutRequest(task=number) for number in range(count)]
    ids = [rollout.rollout_id for rollout in await store.enqueue_many_rollouts(requests)]
    rollouts = await store.wait_for_rollouts(ids)
    assert all(rollout.status == "succeeded" for rollout in rollouts), rollouts[0].error
    return max(one.finished_at or 0.0 for one in rollouts) - min(one.started_at or 0.0 for one in rollouts)


async def rate_and_memory(agent: str, count: int, concurrency: int) -> dict[str, float]:
    """Return what one `agl runner` does and holds."""
    with agl_server("store=memory") as (url, _), agl_runner(url, agent, concurrency) as pid:
        async with LightningStoreClient(url) as store:
            await joined(store)
            seconds = await executed(store, count)
            (child,) = children_of(pid)
            return {
                "rollouts/s": round(count / seconds, 1),
                "processes": 1,
                "MB of the runner": round(megabytes(child, "VmHWM"), 1),
                "MB of its parent": round(megabytes(pid, "VmHWM"), 1),
            }


async def memory_over(rounds: Sequence[int]) -> dict[str, float]:
    """Return the runner's memory after each round of rollouts, by how many there were in all."""
    held: dict[str, float] = {}
    done = 0
    with agl_server("store=memory") as (url, _), agl_runner(url, "trivial", 64) as pid:
        async with LightningStoreClient(url) as store:
            await joined(store)
            for count in rounds:
                await executed(store, count)
                done += count
                (child,) = children_of(pid)
                held[f"MB after {done}"] = round(megabytes(child), 1)
    return held


def peer_rate_and_memory(python: str, *, count: int, processes: int, seconds: float) -> dict[str, float]:
    """Return what so many runner processes of the peer do and hold, on an agent that takes so many seconds."""
    script = [python, str(FOLDER / "runner_peer.py")]
    with peer_server(python) as url, ExitStack() as stack:
        workers = [
            stack.enter_context(
                subprocess.Popen(
                    [*script, "work", url, "--sleep", str(seconds)],
                    env=QUIET,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            for _ in range(processes)
        ]
        for worker in workers:
            stack.callback(worker.kill)
        subprocess.run(
            [*script, "enqueue", url, str(count)], env=QUIET, check=True, stderr=subprocess.DEVNULL
        )
        for worker in workers:
            assert worker.stdout is not None
            while worker.stdout.readline() not in ("ready\n", ""):
                pass
        for worker in workers:
            _tell(worker)
        done = subprocess.run(
            [*script, "finished", url, str(count)], env=QUIET, check=True, capture_output=True, text=True
        )
        memory = [megabytes(worker.pid, "VmHWM") for worker in workers]
    took: Any = json.loads(done.stdout.splitlines()[-1])
    return {
        "rollouts/s": round(count / took, 1),
        "processes": processes,
        "MB of the runner": round(sum(memory), 1),
    }


def _tell(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()
