"""Measure what runners cost: CPU of a rollout, memory, and rollouts a second beside agentlightning's.

    python benchmarks/runner.py [--peer-python PATH] [--rollouts 10000]

The agents do nothing, so all that is measured is the runner's work.

- In one process, on a store in memory: CPU milliseconds of a rollout from claim to report. `store only` is the same
  claims and reports without a runner. CPU is the whole process's, store included; enqueueing is not counted.
- An `agl runner` beside an `agl store`: 1,000 agents that sleep 1 s, all at once in one process; its memory after each
  2,000 rollouts; rollouts a second and memory on an agent that returns at once.
- agentlightning 0.3.0's runner beside its store, on the same agents (runner_peer.py): a process for each rollout at
  once. PATH is the interpreter of an environment that has it.

Prints tables and writes benchmarks/results/runner.json with machine, load and commit.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median

import report
from runner_served import memory_over, peer_rate_and_memory, rate_and_memory

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
SLEEPERS = 1_000
PEER_PROCESSES = 4


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


async def served_table(rollouts: int) -> dict[str, dict[str, float]]:
    """Return the numbers of an `agl runner`."""
    return {
        "1,000 agents that sleep 1 s, at once": await rate_and_memory("sleeping", 2 * SLEEPERS, SLEEPERS),
        "trivial agent, 4 at once": await rate_and_memory("trivial", rollouts // 5, 4),
        "trivial agent, 64 at once": await rate_and_memory("trivial", rollouts // 5, 64),
        "memory": await memory_over([rollouts // 5] * 5),
    }


def peer_table(python: str) -> dict[str, dict[str, float]]:
    """Return the numbers of the peer's runner."""
    return {
        "agents that sleep 1 s, 4 at once": peer_rate_and_memory(
            python, count=16, processes=PEER_PROCESSES, seconds=1.0
        ),
        "trivial agent, 4 at once": peer_rate_and_memory(
            python, count=200, processes=PEER_PROCESSES, seconds=0.0
        ),
    }


def main() -> int:
    """Print and write the tables; 1 when the budget is broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer-python")
    parser.add_argument("--rollouts", type=int, default=10_000)
    options = parser.parse_args()
    conditions = report.machine()
    served = asyncio.run(served_table(options.rollouts))
    peer = peer_table(options.peer_python) if options.peer_python else {}
    table = asyncio.run(measured_table())
    print(f"{'a rollout, claim to report':40} {'CPU ms':>8} {'wall ms':>8}")
    for name, row in table.items():
        print(f"{name:40} {row['cpu_ms']:8.3f} {row['wall_ms']:8.3f}")
    cost = table[ASYNC]["cpu_ms"]
    print(f"budget: {cost} of {BUDGET_MS} ms CPU")
    for title, rows in (("agl runner", served), ("agentlightning 0.3.0", peer)):
        for name, row in rows.items():
            print(f"{title:21} {name:38} {', '.join(f'{value:g} {what}' for what, value in row.items())}")
    conditions |= {"rollouts": ROLLOUTS, "rounds": ROUNDS, "budget_ms": BUDGET_MS}
    report.write(
        "runner", conditions, {"in process": table, "agl runner": served, "agentlightning 0.3.0": peer}
    )
    return 0 if cost < BUDGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
