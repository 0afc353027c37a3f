"""What each algorithm takes to reach the same held-out reward: `python benchmarks/to_target.py [--target 0.6]`.

Each algorithm starts from the same policy, agent, prompt and questions (recipe ladder_sql with one override, constant
learning rate). For every seed, `ppo` and `sft` run once and are measured between their updates; `apo` and `gepa` are
measured before and after only, so they run with one budget of rollouts after the other, doubled, until a run ends above
the target, and what that last run took counts. The reward is greedy, on questions of the test split, which choose
nothing. All is counted in the store: rollouts that are learned from, all tokens of theirs and of the optimizer's, the
time but for evaluations. The cost is these tokens at stated prices. Writes benchmarks/results/to_target.json.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from report import machine, write

from agl.algorithms.prompts.spending import Spent, spent_in_rollout
from agl.store.base import LightningStore
from agl.store.opening import store_to_read
from agl.store.paging import iter_rollouts
from agl.types import ProxyLLM, Rollout, RolloutQuery

PRICES = "{policy: {input: 0.15, output: 0.6}, optimizer: {input: 0.15, output: 0.6}}"
"""USD per million tokens: what a small model of a provider costs, for want of a price of one's own machine."""
WITH_UPDATES = {
    "sft": ["algorithm.rounds=8", "algorithm.tasks_per_round=160", "algorithm.keep_earlier=true"],
    "ppo": ["algorithm.iterations=40", "algorithm.evaluate_every=3"],
}
SEARCHES = {"apo": ["algorithm.beam_rounds=50"], "gepa": ["algorithm.iterations=500"]}


@dataclass(frozen=True, slots=True)
class Point:
    """Where a run stood at one of its evaluations.

    Args:
        reward: mean on the held-out questions.
        rollouts: that were learned from so far.
        tokens: of all calls so far but for evaluations.
        cost_usd: of these.
        minutes: so far but for evaluations.
    """

    reward: float
    rollouts: int
    tokens: int
    cost_usd: float
    minutes: float


def train(run_dir: Path, algorithm: str, settings: Sequence[str], *, seed: int, questions: int) -> None:
    """Run one training run to its end."""
    command = [sys.executable, "-m", "agl", "train", "--run-dir", str(run_dir), "+recipe=ladder_sql"]
    command += [
        f"algorithm={algorithm}",
        *settings,
        f"seed={seed}",
        f"data.arguments.seed={seed}",
        "data.val_split=test",
        f"data.num_val={questions}",
        f"proxy.prices={PRICES}",
        "learner.schedule=constant",
        "metrics.console=plain",
    ]
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr}"
        )


async def points_of(run_dir: Path) -> list[Point]:
    """Return where the run stood at each of its greedy evaluations, in order."""
    async with store_to_read(str(run_dir)) as store:
        every = [rollout async for rollout in iter_rollouts(store, RolloutQuery())]
        evaluations: defaultdict[str, list[Rollout]] = defaultdict(list)
        for rollout in every:
            if rollout.mode == "val":
                evaluations[str(rollout.resources_id)].append(rollout)
        spent = {
            rollout.rollout_id: await spent_in_rollout(
                store, rollout, is_agent="optimizer" not in rollout.metadata
            )
            for rollout in every
            if rollout.mode != "val"
        }
        begin = min(rollout.created_at for rollout in every)
        pauses = [(_begin(ones), _end(ones)) for ones in evaluations.values()]
        return sorted(
            [
                _point(ones, every, spent, begin, pauses)
                for resources_id, ones in evaluations.items()
                if await _is_greedy(store, resources_id)
            ],
            key=lambda point: point.minutes,
        )


def _point(
    ones: list[Rollout],
    every: list[Rollout],
    spent: dict[str, Spent],
    begin: float,
    pauses: list[tuple[float, float]],
) -> Point:
    at = _begin(ones)
    taken = sum(
        (spent[one.rollout_id] for one in every if one.rollout_id in spent and one.created_at < at), Spent()
    )
    paused = sum(end - start for start, end in pauses if end <= at)
    return Point(
        reward=fmean(one.reward for one in ones if one.reward is not None),
        rollouts=taken.rollouts,
        tokens=taken.tokens,
        cost_usd=taken.cost_usd,
        minutes=(at - begin - paused) / 60,
    )


def _begin(ones: list[Rollout]) -> float:
    return min(one.created_at for one in ones)


def _end(ones: list[Rollout]) -> float:
    return max(one.finished_at or 0.0 for one in ones)


async def _is_greedy(store: LightningStore, resources_id: str) -> bool:
    resources = (await store.get_resources_by_id(resources_id)).resources
    models = [one for one in resources.values() if isinstance(one, ProxyLLM)]
    return any((one.sampling or {}).get("temperature") == 0.0 for one in models)


def reached(
    folder: Path, algorithm: str, *, seed: int, target: float, questions: int, budgets: Sequence[int]
) -> tuple[Point | None, list[Point]]:
    """Return where the algorithm first was at the target, None where it never was, and all it was measured at."""
    seen: list[Point] = []
    if algorithm in WITH_UPDATES:
        run_dir = folder / f"{algorithm}-{seed}"
        train(run_dir, algorithm, WITH_UPDATES[algorithm], seed=seed, questions=questions)
        seen = asyncio.run(points_of(run_dir))
    for budget in budgets if algorithm in SEARCHES else ():
        run_dir = folder / f"{algorithm}-{seed}-{budget}"
        settings = [*SEARCHES[algorithm], f"algorithm.budget.max_rollouts={budget}"]
        train(run_dir, algorithm, settings, seed=seed, questions=questions)
        seen.append(asyncio.run(points_of(run_dir))[-1])
        if seen[-1].reward >= target:
            break
    return next((point for point in seen if point.reward >= target), None), seen


def main() -> None:
    """Run the grid and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--algorithms", nargs="+", default=["apo", "gepa", "sft", "ppo"], choices=[*SEARCHES, *WITH_UPDATES]
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--target", type=float, default=0.6)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--budgets", nargs="+", type=int, default=[100, 200, 400, 800, 1600])
    arguments = parser.parse_args()
    conditions = {**machine(), "target": arguments.target, "questions": arguments.questions, "prices": PRICES}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in arguments.seeds:
            for algorithm in arguments.algorithms:
                found, seen = reached(
                    Path(folder),
                    algorithm,
                    seed=seed,
                    target=arguments.target,
                    questions=arguments.questions,
                    budgets=arguments.budgets,
                )
                rows.append(
                    {
                        "algorithm": algorithm,
                        "seed": seed,
                        "reached": None if found is None else asdict(found),
                        "points": [asdict(point) for point in seen],
                    }
                )
                print(
                    algorithm,
                    seed,
                    found or f"not reached; best {max(one.reward for one in seen)}",
                    flush=True,
                )
                write("to_target", conditions, {"runs": rows})


if __name__ == "__main__":
    main()
