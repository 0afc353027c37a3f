"""What a finished stage leaves is complete or absent."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from sampled_batches import ConstantCritic

from agl.algorithms.prompts.spending import Spent
from agl.algorithms.stages.record import StageRecord, load_record, save_record
from agl.errors import CheckpointError
from agl.evaluation.counts import RolloutCounts
from agl.types import PromptTemplate


async def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    record = StageRecord(
        spent=Spent(rollouts=3, tokens=5, cost_usd=0.5, seconds=1.5),
        last_step=7,
        counts=RolloutCounts(enqueued=3, succeeded=1, failed=Counter({"KeyError": 2})),
        prompts={"p": PromptTemplate(template="Ä {x}", version=2, parent="0123456789ab")},
        moved_weights=True,
        policy_dir=tmp_path / "policy",
        notes=("a", "b"),
    )
    learner = ConstantCritic()
    learner.policy_version = 4
    assert load_record(tmp_path / "stage") is None
    await save_record(tmp_path / "stage", record, learner)
    assert load_record(tmp_path / "stage") == record
    assert (tmp_path / "stage" / "learner" / "version.txt").read_text() == "4"
    await save_record(tmp_path / "stage", record, learner)  # a stage that was killed while it wrote


async def test_a_stage_without_weights_saves_none(tmp_path: Path) -> None:
    await save_record(tmp_path, StageRecord(spent=Spent(), last_step=0), ConstantCritic())
    assert not (tmp_path / "learner").exists()


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"result\.json is not the record of a finished stage"):
        load_record(tmp_path)
