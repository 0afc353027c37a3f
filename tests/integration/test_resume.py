"""A run killed at any moment goes on as if nothing had happened."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from train_processes import SMALL, finished, metrics_of, resume_train, start_train, wait_for_iteration


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four iterations that nobody disturbed."""
    run_dir = tmp_path_factory.mktemp("runs") / "whole"
    code, _, err = finished(start_train(run_dir, *SMALL))
    assert code == 0, err
    return run_dir


@pytest.mark.parametrize("killed_behind", [1, 3])
def test_a_killed_run_resumes_to_the_same_numbers(
    uninterrupted: Path, tmp_path: Path, killed_behind: int
) -> None:
    run_dir = tmp_path / "killed"
    process = start_train(run_dir, *SMALL)
    wait_for_iteration(run_dir, killed_behind)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    code, _, err = finished(resume_train(run_dir))
    assert code == 0, err

    whole, resumed = metrics_of(uninterrupted), metrics_of(run_dir)
    assert sorted(resumed) == sorted(whole) == [0, 1, 2, 3, 4]
    for iteration, expected in whole.items():
        assert resumed[iteration] == pytest.approx(expected, rel=1e-3, abs=1e-4), iteration


def test_counters_continue_and_add_up(uninterrupted: Path) -> None:
    last = metrics_of(uninterrupted)[4]
    assert last["total/rollouts/enqueued"] == 4 * 4 * 2
    assert last["total/rollouts/enqueued"] == (
        last["total/rollouts/succeeded"] + last["total/rollouts/failed"] + last["total/rollouts/cancelled"]
    )
