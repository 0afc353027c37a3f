"""DPO: the better rollout of a group against the worse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sampled_batches import ConstantCritic, trajectory

from agl.algorithms.dpo import DPO
from agl.algorithms.tuning.examples import Example
from agl.errors import ConfigError, RunStoppedError
from agl.types import PreferenceLoss


def example(name: str, reward: float, group: str = "g") -> Example:
    sequences = [replace(trajectory([0, 1]), token_ids=[1, ord(sign)]) for sign in name]
    return Example(example_id=name, group_id=group, task="t", reward=reward, trajectories=sequences)


def test_each_group_gives_its_best_against_its_worst_with_all_their_sequences() -> None:
    group = [example("ab", 0.5), example("c", 1.0), example("de", 0.0)]
    lesson = DPO(group_size=3).lesson([], [[example("x", 1.0)], [*group, example("f", 1.0, "other")]])
    (unit,) = lesson.units
    assert [(one.rollout_id, one.pair_id, one.preferred) for one in unit] == [
        ("c", "0", True),
        ("de", "0", False),
        ("de", "0", False),
    ]
    assert lesson.metrics == {"pairs": 1.0, "margin": 1.0, "without_pair/single": 1.0}


def test_groups_that_are_all_alike_stop_the_run_with_what_to_do() -> None:
    with pytest.raises(RunStoppedError, match=r"\(1 equal\): use tasks of medium difficulty"):
        DPO(min_margin=0.5).lesson([], [[example("a", 1.0), example("b", 0.9)]])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beta": 0.0}, "beta=0.0 must be above 0"),
        ({"likelihood_coef": -0.1}, "likelihood_coef=-0.1"),
        ({"pairs_per_group": 0}, "pairs_per_group=0"),
        ({"min_margin": -1.0}, "min_margin=-1.0"),
        ({"group_size": 1}, "group_size=1: DPO compares"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DPO(**settings)


def test_stores_are_looked_for_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no store at"):
        DPO(stores=(str(tmp_path),)).check(ConstantCritic(), trainable=True)
    (tmp_path / "store.sqlite").touch()
    DPO(stores=(str(tmp_path),)).check(ConstantCritic(), trainable=True)
    with pytest.raises(ConfigError, match="store_tokens=template needs a learner"):
        DPO(stores=(str(tmp_path),), store_tokens="template").check(ConstantCritic(), trainable=True)


def test_it_asks_for_the_reference_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="there is no reference"):
        DPO().check(ConstantCritic(lacks="reference"), trainable=True)
    DPO().check(ConstantCritic(), trainable=True)
    assert DPO(beta=0.3, likelihood_coef=1.0).loss() == PreferenceLoss(beta=0.3, likelihood_coef=1.0)
