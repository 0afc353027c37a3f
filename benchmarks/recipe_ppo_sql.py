"""How much, and how fast, the recipe learns: `python benchmarks/recipe_ppo_sql.py`.

For every seed and data split: measure the starter policy on fresh questions (the test split, never used to choose a
setting) and on a held-out schema, train it with the recipe's defaults, measure again. Everything runs through `agl
train`: store, runner, HTTP proxy, spans. Prints the curve by wall-clock and a table; writes
benchmarks/results/recipe_ppo_sql.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent / "results"
MEASURES = ("val/reward", "val/reward_greedy")


def agl_train(run_dir: Path, *overrides: str, recipe: str = "ppo_sql") -> tuple[list[dict[str, Any]], float]:
    """Run `agl train`; return the metrics of its iterations and its wall-clock seconds."""
    command = [
        sys.executable,
        "-m",
        "agl",
        "train",
        "--run-dir",
        str(run_dir),
        f"+recipe={recipe}",
        *overrides,
    ]
    started = time.monotonic()
    done = subprocess.run(
        [*command, "metrics.console=plain"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    seconds = time.monotonic() - started
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()], seconds


def measure(
    run_dir: Path, split: str, *, data_seed: int, number: int, policy: Path | None
) -> dict[str, float]:
    """Return accuracy sampled at temperature 1 and greedy on the split, without training."""
    overrides = [
        "algorithm=baseline",
        "~learner",
        f"data.arguments.seed={data_seed}",
        f"data.val_split={split}",
        f"data.num_val={number}",
        *([f"policy.path={policy}"] if policy else []),
    ]
    metrics, _ = agl_train(run_dir, *overrides)
    return {name.removeprefix("val/"): metrics[0][name] for name in MEASURES}


SPLITS = ("test", "schema")
NUM_SCHEMA = 200


def measure_all(
    folder: Path, *, data_seed: int, number: int, policy: Path | None
) -> dict[str, dict[str, float]]:
    """Measure on fresh questions and on the held-out schema."""
    numbers = {"test": number, "schema": min(number, NUM_SCHEMA)}
    return {
        split: measure(folder / split, split, data_seed=data_seed, number=numbers[split], policy=policy)
        for split in SPLITS
    }


def one_run(
    folder: Path,
    *,
    algorithm: str,
    seed: int,
    data_seed: int,
    number: int,
    before: dict[str, dict[str, float]],
    extra: list[str],
) -> dict[str, Any]:
    """Train, and measure what came out."""
    metrics, seconds = agl_train(
        folder / "train", f"algorithm={algorithm}", f"seed={seed}", f"data.arguments.seed={data_seed}", *extra
    )
    after = measure_all(
        folder / "after", data_seed=data_seed, number=number, policy=folder / "train" / "policy"
    )
    elapsed, curve = 0.0, []
    for line in metrics:
        elapsed += line.get("time/iteration_seconds", 0.0)
        curve.append(
            {"seconds": elapsed, **{k: line[k] for k in ("step", "train/reward", *MEASURES) if k in line}}
        )
    row = {
        "algorithm": algorithm,
        "seed": seed,
        "data_seed": data_seed,
        "train_seconds": seconds,
        "before": before,
        "after": after,
        "curve": curve,
        "rollouts": metrics[-1].get("total/rollouts/enqueued"),
        "peak_mb_of_any_process": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }
    print(line_of(row), flush=True)
    return row


def gain(row: dict[str, Any], split: str, name: str) -> float:
    """After minus before."""
    return row["after"][split][name] - row["before"][split][name]


def line_of(row: dict[str, Any]) -> str:
    """One run as a table row."""
    cells = [
        f"{row['algorithm']:5} seed {row['seed']} split {row['data_seed']}  {row['train_seconds']:5.0f} s"
    ]
    for split in ("test", "schema"):
        for name, label in (("reward", "sampled"), ("reward_greedy", "greedy")):
            cells.append(
                f"{split} {label} {row['before'][split][name]:.3f} -> {row['after'][split][name]:.3f}"
            )
    return "  ".join(cells)


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Medians of the gains, and the worst of them."""
    result: dict[str, float] = {
        "runs": len(rows),
        "train_seconds": median(row["train_seconds"] for row in rows),
    }
    for split in ("test", "schema"):
        for name in ("reward", "reward_greedy"):
            gains = [gain(row, split, name) for row in rows]
            result[f"{split}/{name}/median_gain"] = median(gains)
            result[f"{split}/{name}/worst_gain"] = min(gains)
            result[f"{split}/{name}/median_before"] = median(row["before"][split][name] for row in rows)
            result[f"{split}/{name}/median_after"] = median(row["after"][split][name] for row in rows)
    return result


def main() -> None:
    """Run the grid and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithms", nargs="+", default=["ppo", "grpo"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--questions", type=int, default=400)
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time; 1 for honest seconds")
    parser.add_argument("--out", default="recipe_ppo_sql.json")
    parser.add_argument("overrides", nargs="*", help="further overrides of the training runs")
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "commit": subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip(),
        "questions": arguments.questions,
        "runs_at_a_time": arguments.parallel,
    }
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(arguments.parallel) as pool:
        folder = Path(name)
        befores = {
            split: pool.submit(
                measure_all,
                folder / f"before-{split}",
                data_seed=split,
                number=arguments.questions,
                policy=None,
            )
            for split in arguments.splits
        }
        before = {split: future.result() for split, future in befores.items()}
        runs = [
            pool.submit(
                one_run,
                folder / f"{algorithm}-{split}-{seed}",
                algorithm=algorithm,
                seed=seed,
                data_seed=split,
                number=arguments.questions,
                before=before[split],
                extra=arguments.overrides,
            )
            for algorithm in arguments.algorithms
            for seed in arguments.seeds
            for split in arguments.splits
        ]
        for run in as_completed(runs):
            rows.append(run.result())
            report |= {
                "rows": rows,
                "summary": {
                    algorithm: summary(chosen)
                    for algorithm in arguments.algorithms
                    if (chosen := [row for row in rows if row["algorithm"] == algorithm])
                },
            }
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / arguments.out).write_text(json.dumps(report, indent=1))
    for row in rows:
        print("\n" + line_of(row))
        print(
            "   "
            + "  ".join(
                f"{p['seconds']:.0f}s {p['train/reward']:.2f}" for p in row["curve"] if "train/reward" in p
            )
        )
    print(json.dumps(report["summary"], indent=1))


if __name__ == "__main__":
    main()
