"""A checkpoint is complete or it does not exist."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from sampled_batches import ConstantCritic

from agl.algorithms.checkpoints import (
    LoopState,
    checkpoint_to_resume,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)
from agl.errors import CheckpointError
from agl.evaluation.counts import RolloutCounts

COUNTS = RolloutCounts(enqueued=5, succeeded=3, failed=Counter({"ValueError": 2}), without_reward=1)


async def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    learner = ConstantCritic()
    learner.policy_version = 7
    state = LoopState(iteration=12, counts=COUNTS, elapsed_seconds=3.5)
    path = await save_checkpoint(tmp_path / "checkpoints", state, learner, keep=2)
    assert path == newest_checkpoint(tmp_path / "checkpoints")
    fresh = ConstantCritic()
    assert await load_checkpoint(path, fresh) == state
    assert fresh.policy_version == 7


async def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for iteration in (1, 2, 3, 10):
        await save_checkpoint(tmp_path, LoopState(iteration=iteration), ConstantCritic(), keep=2)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["iteration-000003", "iteration-000010"]


async def test_a_half_written_checkpoint_is_not_seen(tmp_path: Path) -> None:
    await save_checkpoint(tmp_path, LoopState(iteration=1), ConstantCritic(), keep=2)
    (tmp_path / ".partial-000002" / "learner").mkdir(parents=True)
    (tmp_path / "iteration-000003").mkdir()
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.name == "iteration-000001"


async def test_a_damaged_state_is_refused_with_its_path(tmp_path: Path) -> None:
    path = await save_checkpoint(tmp_path, LoopState(iteration=1), ConstantCritic(), keep=2)
    (path / "state.json").write_text('{"format": 1}')
    with pytest.raises(CheckpointError, match="iteration-000001"):
        await load_checkpoint(path, ConstantCritic())


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "missing") is None


async def test_only_a_resumed_run_goes_on_from_a_checkpoint_and_without_one_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert checkpoint_to_resume(tmp_path, resume=True) is None
    assert "starting over from the first policy" in caplog.text
    saved = await save_checkpoint(tmp_path, LoopState(iteration=3), ConstantCritic(), keep=1)
    assert checkpoint_to_resume(tmp_path, resume=True) == saved
    assert checkpoint_to_resume(tmp_path, resume=False) is None
