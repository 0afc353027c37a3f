"""A killed ladder goes on at the stage where it was: nothing is paid for twice, and it ends at the same numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from killed_searches import kill_when, plain, rollouts
from train_processes import finished, metrics_of, resume_train, start_train

SMALL = [
    "+recipe=ladder_sql",
    "data.num_train=40",
    "data.num_val=4",
    "algorithm.stages.prompts.val_batch_size=4",
    "algorithm.stages.prompts.feedback_batch_size=4",
    "algorithm.stages.prompts.branch_factor=2",
    "algorithm.stages.prompts.beam_rounds=1",
    "algorithm.stages.sft.tasks_per_round=8",
    "algorithm.stages.sft.epochs=1",
    "algorithm.stages.rl.iterations=3",
    "algorithm.stages.rl.tasks_per_iteration=4",
    "algorithm.stages.rl.save_every=1",
    "metrics.console=plain",
]
PROMPT = """{schema}
{question}
Reply with the query and nothing else.
If you are shown an error, find its cause and correct the query.
Select exactly the columns that are asked for, in their order.
Spell values as they are written in the question.
"""
"""The policy starts cold: without instructions, a few rollouts have nothing right to learn from."""
CHANGES = re.compile(r"time/|speed/|spent/|ladder/(tokens|minutes)")
"""What another process takes otherwise."""


def numbers(run_dir: Path) -> dict[int, dict[str, Any]]:
    return {
        step: {name: value for name, value in values.items() if not CHANGES.match(name)}
        for step, values in metrics_of(run_dir).items()
    }


def learning_by_reinforcement(run_dir: Path) -> bool:
    """Whether the last stage samples its second iteration."""
    return any("-rl-i2-" in row["rollout_id"] for row in rollouts(run_dir))


@pytest.mark.timeout(1200)  # three runs that learn, on a machine that may be busy
def test_a_killed_ladder_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    whole, run_dir = tmp_path / "whole" / "run", tmp_path / "killed" / "run"
    (tmp_path / "prompt.txt").write_text(PROMPT)
    small = [*SMALL, f"resources.prompt_template.template=${{file:{tmp_path / 'prompt.txt'}}}"]
    code, out, err = finished(start_train(whole, *small), timeout=600)
    assert code == 0, err
    assert re.search(r"^ +stage +rollouts +tokens +minutes +cost +held-out", out, re.MULTILINE)
    assert [line.split()[0] for line in out.partition("Ladder\n")[2].splitlines()[1:6]] == [
        "start",
        "prompts",
        "sft",
        "rl",
        "all",
    ]
    kill_when(start_train(run_dir, *small), run_dir, lambda: learning_by_reinforcement(run_dir))
    finished_before = {row["rollout_id"] for row in rollouts(run_dir) if row["status"] == "succeeded"}
    records = {path: path.read_bytes() for path in run_dir.glob("stages/*/result.json")}
    assert {path.parent.name for path in records} == {"prompts", "sft"}
    code, again, err = finished(resume_train(run_dir), timeout=600)
    assert code == 0, err
    assert {path: path.read_bytes() for path in records} == records  # these stages were not run again
    resumed, undisturbed = numbers(run_dir), numbers(whole)
    assert list(resumed) == list(undisturbed)
    for step, values in undisturbed.items():
        # Logprobs depend in their last digits on which calls are answered together.
        assert resumed[step] == pytest.approx(values, rel=1e-3, abs=1e-4), step
    kept = [row for row in rollouts(run_dir) if "abandoned" not in row["metadata"]]
    assert sorted(map(plain, kept)) == sorted(map(plain, rollouts(whole)))
    assert finished_before <= {row["rollout_id"] for row in kept}  # what was paid for is used
    held_out = [line for line in out.splitlines() if line.startswith("  sampled  before")]
    assert held_out == [line for line in again.splitlines() if line.startswith("  sampled  before")]
