"""What an attempt costs by the kind of its agent: a function here, in a kept process, in a fresh one, a command.

The agent does nothing, so all of it is overhead. Seconds are of CPU time, of this process and of those that it waited
for. Prints a table and writes benchmarks/results/agents.json.

    python benchmarks/agents.py [--attempts 40]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from report import machine, write

from agl.agents.base import Agent, Assignment, opened
from agl.agents.command import CommandAgent
from agl.agents.function import FunctionAgent
from agl.agents.process_tree import members
from agl.types import Attempt, Rollout


def assignment(number: int) -> Assignment:
    """An attempt with nothing to it."""
    rollout = Rollout(rollout_id=f"r{number}", task=number, created_at=1.0)
    attempt = Attempt(
        attempt_id=f"a{number}",
        rollout_id=rollout.rollout_id,
        sequence_id=1,
        started_at=1.0,
        last_heartbeat_at=1.0,
    )
    return Assignment(rollout=rollout, attempt=attempt)


async def seconds(agent: Agent, attempts: int, *, kept: bool) -> tuple[float, float]:
    """CPU and wall seconds of attempts one after the other; what a kept process used counts when it has ended."""
    begin, clock = sum(os.times()[:4]), time.perf_counter()
    async with opened(agent) if kept else nullcontext():
        for number in range(attempts):
            await agent.run(assignment(number))
    return sum(os.times()[:4]) - begin, time.perf_counter() - clock


async def cost(agent: Agent, attempts: int, *, kept: bool) -> dict[str, float]:
    """CPU and wall milliseconds of one attempt more: what starts and ends once is in both terms of the difference."""
    few = await seconds(agent, max(attempts // 4, 1), kept=kept)
    many = await seconds(agent, max(attempts // 4, 1) + attempts, kept=kept)
    cpu, wall = (1e3 * (more - less) / attempts for more, less in zip(many, few, strict=True))
    return {"cpu_ms": round(cpu, 3), "wall_ms": round(wall, 3)}


async def measure(attempts: int) -> dict[str, dict[str, float]]:
    """The table, by kind of agent."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "nothing.py"
        file.write_text("async def nothing(task):\n    return 1.0\n\ndef blocking(task):\n    return 1.0\n")
        isolated = FunctionAgent(f"{file}:nothing", isolation="process")
        table = {
            "async function": await cost(FunctionAgent(f"{file}:nothing"), 50 * attempts, kept=True),
            "sync function (thread)": await cost(FunctionAgent(f"{file}:blocking"), 50 * attempts, kept=True),
            "isolated, process kept": await cost(isolated, attempts, kept=True),
            "isolated, process an attempt": await cost(isolated, max(attempts // 8, 4), kept=False),
            "command (true)": await cost(CommandAgent(["true"]), attempts, kept=True),
        }
    begin = time.process_time()
    for _ in range(20):
        members("AGL_ATTEMPT_ID=none")
    table["one look over all processes"] = {"cpu_ms": 50 * (time.process_time() - begin)}
    return table


def main() -> None:
    """Measure, print the table, write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--attempts", type=int, default=40)
    attempts = parser.parse_args().attempts
    conditions = machine()
    table = asyncio.run(measure(attempts))
    print(f"{'an attempt of':32}{'CPU ms':>10}{'wall ms':>10}")
    for name, row in table.items():
        print(f"{name:32}" + "".join(f"{row[key]:10.2f}" for key in ("cpu_ms", "wall_ms") if key in row))
    write("agents", conditions, table)


if __name__ == "__main__":
    main()
