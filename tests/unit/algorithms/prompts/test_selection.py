"""Which tasks choose, in what portions, and how candidates stand."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from agl.algorithms.prompts.scoring import Scores
from agl.algorithms.prompts.selection import most_in_halving, rungs, split_tasks, standing
from agl.errors import ConfigError


def test_tasks_are_split_once_without_overlap() -> None:
    feedback, selection = split_tasks(10, 4, seed=3)
    assert len(selection) == 4
    assert sorted(feedback + selection) == list(range(10))
    assert split_tasks(10, 4, seed=3) == (feedback, selection)
    assert split_tasks(10, 4, seed=4) != (feedback, selection)


def test_too_few_tasks_are_refused() -> None:
    with pytest.raises(ConfigError, match="val_batch_size=10 leaves none of 10"):
        split_tasks(10, 10, seed=0)


@pytest.mark.parametrize(
    ("num_tasks", "expected"), [(16, [4, 8, 16]), (32, [8, 16, 32]), (4, [2, 4]), (2, [2]), (9, [2, 4, 9])]
)
def test_halving_looks_at_a_quarter_half_and_all(num_tasks: int, expected: list[int]) -> None:
    assert rungs(num_tasks) == expected


def test_the_most_that_halving_takes() -> None:
    # 8 new beside 4 known, keep 4, 16 tasks: 8 x 4, then 6 of 12 left x 4, then 4 left x 8
    assert most_in_halving(8, 4, keep=4, num_tasks=16) == 8 * 4 + 6 * 4 + 4 * 8
    # nobody to leave out: all on all tasks
    assert most_in_halving(2, 1, keep=4, num_tasks=16) == 2 * 16


def scores(*rewards: float | None) -> Scores:
    bad = sum(reward is None for reward in rewards)
    return Scores(rewards=dict(enumerate(rewards)), failed=Counter({"ValueError": bad} if bad else {}))


def test_failing_on_a_hard_task_is_no_better_than_the_worst_reward() -> None:
    honest, failing = scores(1.0, -2.0), scores(1.0, None)
    assert standing(honest, worst=-2.0, max_bad_fraction=0.5) == -0.5
    assert standing(failing, worst=-2.0, max_bad_fraction=0.5) == -0.5
    assert failing.mean == 1.0  # what is reported has the rewards only


def test_who_fails_too_often_is_out() -> None:
    assert standing(scores(1.0, None, None), worst=0.0, max_bad_fraction=0.5) == -math.inf
    assert standing(scores(None), worst=0.0, max_bad_fraction=1.0) == -math.inf
