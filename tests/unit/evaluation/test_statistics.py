"""Means and intervals against hand-worked numbers and simulation."""

from __future__ import annotations

import random

import pytest

from agl.evaluation.statistics import mean_reward


def test_the_interval_is_that_of_the_task_means() -> None:
    # task means 1, 0, 0.5: mean 0.5, sample sd 0.5, standard error 0.5/sqrt(3) = 0.288675, times 1.959964 = 0.565793
    reward = mean_reward([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    assert reward.mean == pytest.approx(0.5)
    assert reward.low == pytest.approx(0.5 - 0.565793, abs=1e-5)
    assert reward.high == pytest.approx(0.5 + 0.565793, abs=1e-5)
    assert (reward.num_tasks, reward.num_rewards) == (3, 6)


def test_tasks_without_a_reward_are_left_out_not_zero() -> None:
    assert mean_reward([[1.0], []]).mean == 1.0
    assert mean_reward([[]]).mean is None
    assert str(mean_reward([])) == "no rewards"


def test_one_task_has_no_interval() -> None:
    reward = mean_reward([[0.0, 1.0]])
    assert reward.low is None
    assert str(reward) == "0.500"


def test_the_interval_covers_the_truth_in_95_of_100_simulated_clustered_data_sets() -> None:
    rng = random.Random(1)
    covered = 0
    for _ in range(1000):
        chances = [rng.betavariate(2, 2) for _ in range(60)]
        reward = mean_reward([[float(rng.random() < chance) for _ in range(4)] for chance in chances])
        assert reward.low is not None
        assert reward.high is not None
        covered += reward.low <= 0.5 <= reward.high
    assert 930 <= covered <= 970
