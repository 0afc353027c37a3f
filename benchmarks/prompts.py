"""What searches for prompts find at equal budget: `python benchmarks/prompts.py [--recipe gepa_sql]`.

For every seed (of the scripted model, the tasks, the search): each algorithm searches with the recipe and the same
limit of rollouts, and its prompt is measured on 200 tasks of the test split, which no search and no setting has seen;
the start is measured on the same. Everything runs through `agl train`: store, runner, proxy, spans. Prints a line a run
and a table; writes benchmarks/results/prompts.json, of other recipes than apo_rooms prompts_RECIPE.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from report import machine, write

T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Two-sided 95% points of Student's t for so many runs."""
ALGORITHMS = {
    "apo": [
        "algorithm=apo",
        "algorithm.beam_width=3",
        "algorithm.branch_factor=3",
        "algorithm.beam_rounds=20",
    ],
    "gepa": ["algorithm=gepa", "algorithm.iterations=500"],
    "random_search": ["algorithm=random_search", "algorithm.rounds=100", "algorithm.rewrites_per_round=6"],
}
"""What makes each search: enough rounds that the budget ends it, else the recipe's settings."""


RECIPES = {"apo_rooms": ["apo", "random_search"], "gepa_sql": ["gepa", "apo", "random_search"]}
"""What is compared with each recipe."""


def search(
    folder: Path, recipe: str, algorithm: str, *, seed: int, budget: int, questions: int
) -> dict[str, Any]:
    """Run one search; return what it found, what it took, and its curve."""
    run_dir = folder / f"{algorithm}-{seed}"
    command = [sys.executable, "-m", "agl", "train", "--run-dir", str(run_dir), f"+recipe={recipe}"]
    command += [
        *ALGORITHMS[algorithm],
        f"algorithm.budget.max_rollouts={budget}",
        f"seed={seed}",
        f"inference.seed={seed}",
        f"data.arguments.seed={seed}",
        "data.val_split=test",
        f"data.num_val={questions}",
        "metrics.console=plain",
    ]
    started = time.monotonic()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"}
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr}"
        )
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    last = lines[-1]
    row = {
        "algorithm": algorithm,
        "seed": seed,
        "before": held_out(run_dir, chosen=False),
        "after": held_out(run_dir, chosen=True),
        "on_selection_tasks": last["search/best_reward"],
        "rollouts": last["spent/rollouts"],
        "tokens": last["spent/tokens"],
        "prompts": last["search/candidates"],
        "minutes": (time.monotonic() - started) / 60,
        "curve": [[line["spent/rollouts"], line["search/best_reward"]] for line in lines],
    }
    print(
        f"{algorithm:14} seed {seed}: {row['before']:.3f} -> {row['after']:.3f}"
        f"  {row['rollouts']:.0f} rollouts, {row['prompts']:.0f} prompts, {row['minutes']:.1f} min",
        flush=True,
    )
    return row


def held_out(run_dir: Path, *, chosen: bool) -> float:
    """Return the mean reward of the first or the chosen prompts on the held-out tasks, out of the run's ending."""
    line = next(
        line for line in (run_dir / "ending.txt").read_text().splitlines() if line.startswith("  greedy")
    )
    words = line.split()
    return (
        float(words[words.index("after" if chosen else "before") + 1])
        if "before" in words
        else float(words[1])
    )


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return means over seeds with 95% intervals, and each search's paired difference to random search."""
    of: dict[str, dict[int, float]] = {"start": {}}
    for row in rows:
        of["start"][row["seed"]] = row["before"]
        of.setdefault(row["algorithm"], {})[row["seed"]] = row["after"]
    table: dict[str, Any] = {name: _interval(list(found.values())) for name, found in of.items()}
    for name, found in of.items():
        if name not in ("start", "random_search") and "random_search" in of:
            pairs = [found[seed] - of["random_search"][seed] for seed in found if seed in of["random_search"]]
            table[f"{name} - random_search"] = _interval(pairs)
    return table


def _interval(values: list[float]) -> dict[str, float]:
    mean = fmean(values)
    if len(values) < 2:
        return {"mean": mean, "worst": mean}
    margin = T_95[len(values)] * stdev(values) / len(values) ** 0.5
    return {"mean": mean, "low": mean - margin, "high": mean + margin, "worst": min(values)}


def main() -> None:
    """Run the grid and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="apo_rooms", choices=list(RECIPES))
    parser.add_argument("--algorithms", nargs="+", choices=list(ALGORITHMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--budget", type=int, default=600, help="rollouts of each search")
    parser.add_argument("--questions", type=int, default=200)
    arguments = parser.parse_args()
    conditions = {**machine(), "budget_rollouts": arguments.budget, "questions": arguments.questions}
    recipe, rows = arguments.recipe, list[dict[str, Any]]()
    file = "prompts" if recipe == "apo_rooms" else f"prompts_{recipe}"
    with tempfile.TemporaryDirectory() as folder:
        for seed in arguments.seeds:
            for algorithm in arguments.algorithms or RECIPES[recipe]:
                rows.append(
                    search(
                        Path(folder),
                        recipe,
                        algorithm,
                        seed=seed,
                        budget=arguments.budget,
                        questions=arguments.questions,
                    )
                )
                write(file, conditions, {"runs": rows, "summary": summary(rows)})
    for name, found in summary(rows).items():
        numbers = "  ".join(f"{kind} {value:+.3f}" for kind, value in found.items())
        print(f"{name:24} {numbers}")


if __name__ == "__main__":
    main()
