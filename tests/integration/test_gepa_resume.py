"""A killed evolution of prompts goes on where it was: nothing is paid for twice, and the result is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from killed_searches import asking, check_as_if_nothing_had_happened, kill_when, rollouts, selecting
from train_processes import finished, resume_train, start_train

SMALL = [
    "+recipe=gepa_sql",
    "inference.seconds_per_call=0.05",
    "algorithm.val_batch_size=8",
    "algorithm.iterations=3",
    "algorithm.proposals_per_iteration=2",
    "data.num_train=20",
    "data.num_val=6",
    "metrics.console=plain",
]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search that nobody disturbed."""
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    code, _, err = finished(start_train(run_dir, *SMALL))
    assert code == 0, err
    return run_dir


def in_a_later_iteration(run_dir: Path) -> bool:
    """Whether the first question of the third iteration has been asked."""
    return any(row["rollout_id"].endswith("-ask-reflect-5") for row in rollouts(run_dir))


def on_a_minibatch(run_dir: Path) -> bool:
    """Whether a rewrite is tried on its minibatch."""
    is_asked = any("-ask-reflect-" in row["rollout_id"] for row in rollouts(run_dir))
    return is_asked and selecting(run_dir)


@pytest.mark.parametrize(
    "ripe",
    [
        pytest.param(lambda folder: asking(folder, "reflect"), id="asking-for-a-reflection"),
        pytest.param(in_a_later_iteration, id="in-a-later-iteration"),
        pytest.param(on_a_minibatch, id="on-a-minibatch"),
    ],
)
def test_a_killed_evolution_ends_as_if_nothing_had_happened(
    uninterrupted: Path, tmp_path: Path, ripe: Callable[[Path], bool]
) -> None:
    run_dir = tmp_path / "run"
    kill_when(start_train(run_dir, *SMALL), run_dir, lambda: ripe(run_dir))
    finished_before = {row["rollout_id"] for row in rollouts(run_dir) if row["status"] == "succeeded"}
    code, out, err = finished(resume_train(run_dir))
    assert code == 0, err
    check_as_if_nothing_had_happened(run_dir, uninterrupted, finished_before)
    assert "Held-out reward" in out
