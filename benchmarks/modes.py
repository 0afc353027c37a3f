"""The recipe `ppo_sql` in every mode of execution: `python benchmarks/modes.py [--iterations 10]`.

One seeded run with its runner inside, with two runner processes, with store, runners and training as commands of
their own, and with its records in MongoDB (briskdb speaks its protocol here). Prints for each how long it took, the
curve of the held-out reward, what became of the rollouts, and how far its numbers are from those of the first. Writes
benchmarks/results/modes.json.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from mongo_server import mongo_server
from store_processes import served
from train_processes import metrics_of

from agl.store.mongo import MongoLightningStore
from agl.store.paging import iter_rollouts
from agl.store.sqlite import SqliteLightningStore
from agl.types import RolloutQuery

AGL = (sys.executable, "-m", "agl")
CURVE = ("val/reward", "val/reward_greedy")
TOKEN = "a-token-for-the-benchmark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came out of one mode.

    Args:
        seconds: of the whole command.
        curve: the held-out reward of each evaluation, by measure.
        rollouts: how many ended how.
        differs: places whose status or reward is not that of the first mode.
        examples: some of them, here and in the first mode.
        furthest: the largest difference of a metric from the first mode's.
    """

    seconds: float
    curve: dict[str, list[float]]
    rollouts: dict[str, int]
    differs: int = 0
    examples: dict[str, Any] = field(default_factory=dict[str, Any])
    furthest: float = 0.0


Account = dict[str, tuple[str, float | None]]


def trained(run_dir: Path, arguments: Sequence[str]) -> float:
    """Run `agl train`; return its seconds."""
    begun = time.monotonic()
    done = subprocess.run(
        [*AGL, "train", "--run-dir", str(run_dir), "+recipe=ppo_sql", "metrics.console=plain", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{run_dir.name}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.monotonic() - begun


async def account(store: Any, run_id: str) -> Account:
    """What became of each rollout, by the part of its id that no run has for itself."""
    async with store:
        rollouts = iter_rollouts(store, RolloutQuery(run_id=run_id))
        return {one.rollout_id.removeprefix(run_id): (one.status, one.reward) async for one in rollouts}


@contextmanager
def runners(url: str, folder: Path, number: int) -> Iterator[None]:
    """Commands that have joined the store, until the block ends."""
    command = [*AGL, "runner", "+recipe=ppo_sql", "--store-url", url, "--processes", "1"]
    processes = [
        subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(number)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def in_mode(mode: str, folder: Path, arguments: Sequence[str]) -> tuple[float, Account]:
    """Run the recipe in a mode; return its seconds and what became of its rollouts."""
    run_dir = folder / mode
    own = SqliteLightningStore(str(run_dir / "store.sqlite"))
    two = ["runner=processes", "runner.processes=2"]
    if mode == "inline":
        return trained(run_dir, arguments), asyncio.run(account(own, mode))
    if mode == "processes":
        return trained(run_dir, [*arguments, *two]), asyncio.run(account(own, mode))
    if mode == "mongo":
        mongo = mongo_server()
        mongo.clear()
        at = ["store=mongo", f"store.url='{mongo.url}'", "store.journal=false"]
        seconds = trained(run_dir, [*arguments, *two, *at])
        return seconds, asyncio.run(account(MongoLightningStore(mongo.url, journal=False), mode))
    os.environ["AGL_STORE_TOKEN"] = TOKEN
    with served("store.path=commands.sqlite", folder=folder) as store:
        with runners(store.url, folder, 2):
            seconds = trained(run_dir, [*arguments, "runner=remote", "--store-url", store.url])
        store.process.terminate()
        store.ended(timeout=30)
    return seconds, asyncio.run(account(SqliteLightningStore(str(folder / "commands.sqlite")), mode))


def outcome(
    seconds: float, found: Account, run_dir: Path, first: tuple[Account, dict[int, dict[str, Any]]] | None
) -> tuple[Outcome, tuple[Account, dict[int, dict[str, Any]]]]:
    """Compare a mode with the first; also return what the next ones are compared with."""
    numbers = metrics_of(run_dir)
    expected, reference = first or (found, numbers)
    gaps = [
        abs(value - reference[step].get(name, float("inf")))
        for step, values in numbers.items()
        for name, value in values.items()
    ]
    places = sorted(one for one in found.keys() | expected.keys() if found.get(one) != expected.get(one))
    result = Outcome(
        seconds=round(seconds, 1),
        curve={name: [values[name] for values in numbers.values() if name in values] for name in CURVE},
        rollouts=dict(Counter(status for status, _ in found.values())),
        differs=len(places),
        examples={place: [found.get(place), expected.get(place)] for place in places[:10]},
        furthest=max(gaps),
    )
    return result, (expected, reference)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--tasks", type=int, default=16, help="tasks of an iteration")
    parser.add_argument("--modes", nargs="+", default=["inline", "processes", "commands", "mongo"])
    given = parser.parse_args()
    arguments = [
        f"algorithm.iterations={given.iterations}",
        f"algorithm.tasks_per_iteration={given.tasks}",
        f"algorithm.evaluate_every={max(given.iterations // 2, 1)}",
        "data.num_val=50",
    ]
    results: dict[str, Any] = {}
    first = None
    with tempfile.TemporaryDirectory() as folder:
        for mode in given.modes:
            seconds, found = in_mode(mode, Path(folder), arguments)
            result, first = outcome(seconds, found, Path(folder) / mode, first)
            results[mode] = asdict(result)
            curve = "  ".join(
                f"{name} " + " ".join(f"{value:.3f}" for value in values)
                for name, values in result.curve.items()
            )
            rises = result.curve["val/reward"][-1] > result.curve["val/reward"][0]
            print(
                f"{mode:10} {seconds:6.1f} s  {result.rollouts}  {curve}  {'rises' if rises else 'falls'};"
                f" {result.differs} rollouts differ, metrics by up to {result.furthest:.2g}",
                flush=True,
            )
            report.write("modes", {**report.machine(), **vars(given)}, results)


if __name__ == "__main__":
    main()
