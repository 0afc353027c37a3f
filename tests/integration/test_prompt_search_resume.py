"""A killed search goes on where it was: no rollout and no question is paid for twice, and the result is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from killed_searches import asking, check_as_if_nothing_had_happened, kill_when, rollouts, selecting
from train_processes import finished, resume_train, start_train

SMALL = [
    "+recipe=apo_rooms",
    "inference.seconds_per_call=0.05",
    "algorithm.val_batch_size=8",
    "algorithm.feedback_batch_size=4",
    "algorithm.gradient_batch_size=3",
    "algorithm.beam_width=2",
    "algorithm.branch_factor=2",
    "algorithm.beam_rounds=2",
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


@pytest.mark.parametrize(
    "ripe",
    [
        pytest.param(lambda folder: asking(folder, "critique"), id="asking-for-a-critique"),
        pytest.param(lambda folder: asking(folder, "rewrite-1"), id="asking-for-a-rewrite"),
        pytest.param(selecting, id="selecting"),
    ],
)
def test_a_killed_search_ends_as_if_nothing_had_happened(
    uninterrupted: Path, tmp_path: Path, ripe: Callable[[Path], bool]
) -> None:
    run_dir = tmp_path / "run"
    kill_when(start_train(run_dir, *SMALL), run_dir, lambda: ripe(run_dir))
    finished_before = {row["rollout_id"] for row in rollouts(run_dir) if row["status"] == "succeeded"}
    code, out, err = finished(resume_train(run_dir))
    assert code == 0, err

    check_as_if_nothing_had_happened(run_dir, uninterrupted, finished_before)
    assert "Held-out reward" in out
