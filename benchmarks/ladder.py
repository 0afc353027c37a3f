"""What the ladder reaches beside each of its stages alone, at equal minutes: `python benchmarks/ladder.py`.

For every seed, the recipe ladder_sql runs with all of its stages, and with each one alone, under the same budget of
minutes (the stages' own: evaluations are not in it), the same learner with a constant learning rate, and enough rounds
and iterations that the budget ends them. Each run's table says what it took and the held-out reward on fresh questions
of the test split. Run it on a machine that does nothing else. Writes benchmarks/results/ladder.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from report import machine, write

STAGES = ("prompts", "sft", "rl")
LONG = {
    "prompts": ["algorithm.stages.prompts.beam_rounds=500"],
    "sft": ["algorithm.stages.sft.rounds=40"],
    "rl": ["algorithm.stages.rl.iterations=2000"],
}
"""Of the stage that is to take all that is left."""


def settings_of(kind: str) -> list[str]:
    """Return the overrides of the whole ladder, or of one stage alone."""
    if kind == "ladder":
        return ["+algorithm.shares.prompts=0.2", "+algorithm.shares.sft=0.5", *LONG["sft"], *LONG["rl"]]
    alone = [f"~algorithm.stages.{name}" for name in STAGES if name != kind]
    return [*alone, *LONG[kind], *(["algorithm.stages.sft.earlier_stages=false"] if kind == "sft" else [])]


def climbed(folder: Path, kind: str, *, seed: int, minutes: float, questions: int) -> dict[str, Any]:
    """Run one; return what each stage took and the held-out rewards before and after."""
    run_dir = folder / f"{kind}-{seed}"
    command = [sys.executable, "-m", "agl", "train", "--run-dir", str(run_dir), "+recipe=ladder_sql"]
    command += [
        *settings_of(kind),
        f"algorithm.budget.max_minutes={minutes}",
        f"seed={seed}",
        f"data.arguments.seed={seed}",
        "data.val_split=test",
        f"data.num_val={questions}",
        "learner.schedule=constant",
        "metrics.console=plain",
    ]
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr}"
        )
    rewards = [
        {name: line[name] for name in ("val/reward", "val/reward_greedy") if name in line}
        for line in map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
        if "val/reward" in line
    ]
    stages = {
        path.parent.name: json.loads(path.read_text())["spent"]
        for path in run_dir.glob("stages/*/result.json")
    }
    row = {"kind": kind, "seed": seed, "before": rewards[0], "after": rewards[-1], "stages": stages}
    took = ", ".join(
        f"{name} {one['rollouts']} rollouts {one['seconds'] / 60:.1f} min" for name, one in stages.items()
    )
    print(
        f"{kind:8} seed {seed}: sampled {rewards[0]['val/reward']:.3f} -> {rewards[-1]['val/reward']:.3f}"
        f"  greedy {rewards[0]['val/reward_greedy']:.3f} -> {rewards[-1]['val/reward_greedy']:.3f}  {took}",
        flush=True,
    )
    return row


def main() -> None:
    """Run the grid and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=["ladder", *STAGES], choices=["ladder", *STAGES])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, default=2.0, help="budget of each run")
    parser.add_argument("--questions", type=int, default=400)
    arguments = parser.parse_args()
    conditions = {**machine(), "budget_minutes": arguments.minutes, "questions": arguments.questions}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in arguments.seeds:
            for kind in arguments.kinds:
                row = climbed(
                    Path(folder), kind, seed=seed, minutes=arguments.minutes, questions=arguments.questions
                )
                rows.append(row)
                means = {
                    name: {
                        metric: fmean(one["after"][metric] for one in rows if one["kind"] == name)
                        for metric in ("val/reward", "val/reward_greedy")
                    }
                    for name in arguments.kinds
                    if any(one["kind"] == name for one in rows)
                }
                write("ladder", conditions, {"runs": rows, "means": means})
    for name, found in means.items():
        print(
            f"{name:8} "
            + "  ".join(f"{metric.removeprefix('val/')} {mean:.3f}" for metric, mean in found.items())
        )


if __name__ == "__main__":
    main()
