"""How much, and how fast, learning from right answers helps: `python benchmarks/recipe_sft_sql.py`.

For every seed and data split: measure the starter policy on fresh questions (the test split, never used to choose a
setting) and on a held-out schema, tune it with the recipe's defaults, measure again, all through `agl train`. With
`--of-ppo` a run of ppo_sql with the same seed and split comes first, and the starter policy learns from the right
answers of that run alone, sampling nothing. CPU seconds are of the tuning command, as wall-clock depends on what else
the machine does. Prints a table; writes benchmarks/results/recipe_sft_sql.json, or recipe_sft_of_ppo.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from recipe_ppo_sql import MEASURES, agl_train, line_of, measure_all, summary
from report import machine, write


def cpu_seconds() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def one_run(
    folder: Path,
    *,
    name: str,
    overrides: list[str],
    seed: int,
    data_seed: int,
    number: int,
    before: Any,
    of_ppo: bool,
) -> dict[str, Any]:
    """Tune, and measure what came out."""
    if of_ppo:
        agl_train(folder / "ppo", f"seed={seed}", f"data.arguments.seed={data_seed}", recipe="ppo_sql")
        given = f"algorithm.stores=[{folder / 'ppo'}]"
        overrides = [given, "algorithm.rounds=1", "algorithm.group_size=0", *overrides]
    used = cpu_seconds()
    metrics, seconds = agl_train(
        folder / "train", f"seed={seed}", f"data.arguments.seed={data_seed}", *overrides, recipe="sft_sql"
    )
    used = cpu_seconds() - used
    after = measure_all(
        folder / "after", data_seed=data_seed, number=number, policy=folder / "train" / "policy"
    )
    shown = ("step", "time/elapsed_seconds", "total/rollouts/enqueued", "train/reward", *MEASURES)
    row = {
        "algorithm": name,
        "seed": seed,
        "data_seed": data_seed,
        "train_seconds": seconds,
        "train_cpu_seconds": used,
        "before": before,
        "after": after,
        "curve": [{key: line[key] for key in shown if key in line} for line in metrics],
        "rollouts": metrics[-1]["total/rollouts/enqueued"],
    }
    print(f"{line_of(row)}  CPU {used:.0f} s", flush=True)
    return row


def main() -> None:
    """Run the grid and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--questions", type=int, default=400)
    parser.add_argument("--name", default="sft", help="of the rows; dpo with the overrides of docs/sft.md")
    parser.add_argument("--of-ppo", action="store_true", help="learn from the right answers of a ppo_sql run")
    parser.add_argument("overrides", nargs="*", help="further overrides of the training runs")
    arguments = parser.parse_args()
    conditions, rows = {**machine(), "questions": arguments.questions}, list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for split in arguments.splits:
            before = measure_all(
                folder / f"before-{split}", data_seed=split, number=arguments.questions, policy=None
            )
            for seed in arguments.seeds:
                rows.append(
                    one_run(
                        folder / f"{split}-{seed}",
                        name=arguments.name,
                        overrides=arguments.overrides,
                        seed=seed,
                        data_seed=split,
                        number=arguments.questions,
                        before=before,
                        of_ppo=arguments.of_ppo,
                    )
                )
                results = {"rows": rows, "summary": summary(rows)}
                results["summary"]["train_cpu_seconds"] = median(row["train_cpu_seconds"] for row in rows)
                write("recipe_sft_of_ppo" if arguments.of_ppo else "recipe_sft_sql", conditions, results)
    print(json.dumps(summary(rows), indent=1))


if __name__ == "__main__":
    main()
