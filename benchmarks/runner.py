"""Measure what a runner costs: CPU milliseconds of a rollout from claim to report, on a store in memory.

    python benchmarks/runner.py

The agents do nothing, so all that is measured is agl's. `store only` is the same claims and reports without a runner:
what the store alone costs. CPU is the whole process's, store included; enqueueing is not counted. Prints a table and
writes benchmarks/results/runner.json with machine and commit.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import agl
from agl.runners.runner import LitAgentRunner
from agl.store.base import LightningStore
from agl.store.sqlite import InMemoryLightningStore
from agl.types import PromptTemplate, RolloutRequest

ROLLOUTS = 2_000
ROUNDS = 3
SPANS = 8
BUDGET_MS = 1.5
"""CPU of a trivial async rollout, claim to report."""
ASYNC = "async agent, 64 at once"
RESULTS = Path(__file__).parent / "results" / "runner.json"


async def trivial(task: int) -> float:
    """Return a reward."""
    return float(task)


def trivial_sync(task: int) -> float:
    """Return a reward, from a thread."""
    return float(task)


async def talkative(task: int, prompt_template: PromptTemplate) -> None:
    """Record 7 messages and a reward."""
    for _ in range(SPANS - 1):
        agl.emit_message(prompt_template.template)
    agl.emit_reward(float(task))


async def with_runner(
    store: LightningStore, ids: list[str], agent: Callable[..., object], concurrency: int
) -> None:
    """Run all rollouts with a runner."""
    stop = asyncio.Event()
    running = asyncio.create_task(LitAgentRunner(store, agent, max_concurrency=concurrency).run(stop))
    await store.wait_for_rollouts(ids)
    stop.set()
    stats = await running
    assert stats.succeeded == len(ids), stats


async def store_only(store: LightningStore, ids: list[str], concurrency: int) -> None:
    """Claim and report all rollouts without executing anything."""
    for begin in range(0, len(ids), concurrency):
        claims = await store.dequeue_many_rollouts(worker_id="w", limit=min(concurrency, len(ids) - begin))
        await asyncio.gather(
            *(
                store.update_attempt(
                    claim.rollout.rollout_id,
                    claim.attempt.attempt_id,
                    status="succeeded",
                    worker_id="w",
                    reward=1.0,
                )
                for claim in claims
            )
        )


async def measured(work: Callable[[LightningStore, list[str]], Awaitable[None]]) -> dict[str, float]:
    """Return CPU and wall milliseconds a rollout, the median of some rounds."""
    cpu: list[float] = []
    wall: list[float] = []
    for _ in range(ROUNDS):
        async with InMemoryLightningStore() as store:
            await store.add_resources({"prompt": PromptTemplate(template="how many employees are there?")})
            requests = [RolloutRequest(task=number) for number in range(ROLLOUTS)]
            ids = [rollout.rollout_id for rollout in await store.enqueue_many_rollouts(requests)]
            cpu_begin, wall_begin = time.process_time(), time.perf_counter()
            await work(store, ids)
            cpu.append((time.process_time() - cpu_begin) / ROLLOUTS * 1e3)
            wall.append((time.perf_counter() - wall_begin) / ROLLOUTS * 1e3)
    return {"cpu_ms": round(median(cpu), 3), "wall_ms": round(median(wall), 3)}


async def measured_table() -> dict[str, dict[str, float]]:
    """Return the rows of the table."""
    return {
        "store only, 64 at once": await measured(lambda store, ids: store_only(store, ids, 64)),
        ASYNC: await measured(lambda store, ids: with_runner(store, ids, trivial, 64)),
        "async agent, 1 at once": await measured(lambda store, ids: with_runner(store, ids, trivial, 1)),
        f"async agent, {SPANS} spans, 64 at once": await measured(
            lambda store, ids: with_runner(store, ids, talkative, 64)
        ),
        "sync agent, 64 at once": await measured(
            lambda store, ids: with_runner(store, ids, trivial_sync, 64)
        ),
    }


def main() -> int:
    """Print and write the table; 1 when the budget is broken."""
    table = asyncio.run(measured_table())
    print(f"{'a rollout, claim to report':40} {'CPU ms':>8} {'wall ms':>8}")
    for name, row in table.items():
        print(f"{name:40} {row['cpu_ms']:8.3f} {row['wall_ms']:8.3f}")
    cost = table[ASYNC]["cpu_ms"]
    print(f"budget: {cost} of {BUDGET_MS} ms CPU")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    record = {
        "commit": commit,
        "machine": machine,
        "rollouts": ROLLOUTS,
        "rounds": ROUNDS,
        "budget_ms": BUDGET_MS,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({**record, "table": table}, indent=2) + "\n")
    return 0 if cost < BUDGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
