"""Means, intervals, pass@k and paired tests against hand-worked numbers, scipy's, brute force and simulation."""

from __future__ import annotations

import random
from itertools import combinations, product

import pytest

from agl.evaluation.statistics import (
    mean_reward,
    paired_difference,
    pass_at_k,
    sign_flip_p_value,
    t_test_p_value,
)

FIRST = [1.0, 0.5, 0.75, 0.25, 1.0, 0.0, 0.5, 1.0]
SECOND = [0.5, 0.5, 0.25, 0.5, 0.75, 0.0, 0.0, 0.75]


def test_the_interval_is_that_of_the_task_means() -> None:
    # task means 1, 0, 0.5: mean 0.5, sample sd 0.5, standard error 0.5/sqrt(3) = 0.288675; t(0.975, 2) = 4.302653
    reward = mean_reward([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    assert reward.mean == pytest.approx(0.5)
    assert reward.low == pytest.approx(0.5 - 1.242069, abs=1e-5)
    assert reward.high == pytest.approx(0.5 + 1.242069, abs=1e-5)
    assert (reward.num_tasks, reward.num_rewards) == (3, 6)


def test_tasks_without_a_reward_are_left_out_not_zero() -> None:
    assert mean_reward([[1.0], []]).mean == 1.0
    assert mean_reward([[]]).mean is None
    assert str(mean_reward([])) == "no rewards"


def test_one_task_has_no_interval() -> None:
    reward = mean_reward([[0.0, 1.0]])
    assert reward.low is None
    assert str(reward) == "0.500"


@pytest.mark.parametrize(("num_tasks", "repeats"), [(8, 8), (20, 4), (60, 1)])
def test_the_interval_covers_the_truth_in_95_of_100_simulated_clustered_data_sets(
    num_tasks: int, repeats: int
) -> None:
    rng = random.Random(num_tasks)
    covered = 0
    for _ in range(1000):
        chances = [
            rng.betavariate(2, 2) for _ in range(num_tasks)
        ]  # of mean 0.5; rollouts of a task share it
        reward = mean_reward([[float(rng.random() < chance) for _ in range(repeats)] for chance in chances])
        assert reward.low is not None
        assert reward.high is not None
        covered += reward.low <= 0.5 <= reward.high
    assert 0.93 <= covered / 1000 <= 0.97


def test_rollouts_taken_for_independent_would_not_cover() -> None:
    rng = random.Random(1)
    covered = 0
    for _ in range(200):
        chances = [rng.betavariate(0.5, 0.5) for _ in range(20)]
        rewards = [float(rng.random() < chance) for chance in chances for _ in range(8)]
        reward = mean_reward([[one] for one in rewards])
        assert reward.low is not None
        assert reward.high is not None
        covered += reward.low <= 0.5 <= reward.high
    assert covered / 200 < 0.8


@pytest.mark.parametrize("num_rollouts", range(1, 9))
def test_pass_at_k_is_the_share_of_all_choices_of_k_rollouts_with_one_that_passed(num_rollouts: int) -> None:
    for num_passed in range(num_rollouts + 1):
        passed = [True] * num_passed + [False] * (num_rollouts - num_passed)
        for k in range(1, num_rollouts + 1):
            chosen = list(combinations(passed, k))
            expected = sum(map(any, chosen)) / len(chosen)
            assert pass_at_k(num_rollouts, num_passed, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_of_many_rollouts_does_not_overflow() -> None:
    assert pass_at_k(10_000, 3, 5_000) == pytest.approx(1 - 5000 * 4999 * 4998 / (10000 * 9999 * 9998))


@pytest.mark.parametrize(("num_rollouts", "num_passed", "k"), [(3, 1, 4), (3, 4, 1), (3, 1, 0), (3, -1, 1)])
def test_what_is_no_pass_at_k_is_refused(num_rollouts: int, num_passed: int, k: int) -> None:
    with pytest.raises(ValueError, match="no pass@"):
        pass_at_k(num_rollouts, num_passed, k)


def test_a_paired_difference_is_scipys() -> None:
    # scipy 1.17: ttest_rel(FIRST, SECOND) with its confidence_interval(), and permutation_test(..., "samples")
    found = paired_difference(FIRST, SECOND)
    assert found.mean == pytest.approx(0.21875)
    assert found.low == pytest.approx(-0.01658813932502376, abs=1e-9)
    assert found.high == pytest.approx(0.4540881393250238, abs=1e-9)
    assert (found.p_value, found.test, found.num_tasks) == (pytest.approx(0.125), "permutation", 8)
    differences = [one - other for one, other in zip(FIRST, SECOND, strict=True)]
    assert t_test_p_value(differences) == pytest.approx(0.06392412293886497, rel=1e-9)


@pytest.mark.parametrize("steps", [[-1.0, 0.0, 1.0], [-2 / 3, -1 / 3, 0.0, 1 / 3, 2 / 3, 1.0], None])
def test_the_permutation_test_counts_all_signs(steps: list[float] | None) -> None:
    rng = random.Random(7)
    for size in range(1, 11):
        differences = [rng.choice(steps) if steps else rng.gauss(0.3, 1.0) for _ in range(size)]
        seen = abs(sum(differences)) - 1e-9
        flipped = [
            abs(sum(sign * value for sign, value in zip(signs, differences, strict=True)))
            for signs in product((-1, 1), repeat=size)
        ]
        expected = sum(value >= seen for value in flipped) / len(flipped)
        assert sign_flip_p_value(differences) == pytest.approx(expected, abs=1e-12)


def test_rewards_in_steps_are_tested_exactly_however_many_tasks_there_are() -> None:
    # 1000 tasks of which 40 flipped, 30 of them up: the binomial test of 30 of 40, two-sided (scipy.stats.binomtest)
    difference = paired_difference([1.0] * 30 + [0.0] * 10 + [1.0] * 960, [0.0] * 30 + [1.0] * 970)
    assert difference.p_value == pytest.approx(0.0022214337732293643, rel=1e-9)
    thirds = [random.Random(3).choice((-1 / 3, 1 / 3, 2 / 3)) for _ in range(400)]
    assert sign_flip_p_value(thirds) is not None


def test_many_different_differences_are_tested_by_t() -> None:
    rng = random.Random(5)
    first, second = [rng.gauss(0.1, 1) for _ in range(60)], [rng.gauss(0, 1) for _ in range(60)]
    found = paired_difference(first, second)
    assert found.test == "t"
    assert found.p_value == t_test_p_value([a - b for a, b in zip(first, second, strict=True)])


def test_equal_sides_do_not_differ() -> None:
    found = paired_difference(FIRST, FIRST)
    assert (found.mean, found.p_value, found.low, found.high) == (0.0, 1.0, 0.0, 0.0)
    assert str(found) == "+0.000 [+0.000, +0.000], p = 1.0000"


def test_few_tasks_are_never_taken_for_proof() -> None:
    assert paired_difference([1.0], [0.0]).p_value == 1.0
    assert paired_difference([1.0] * 3, [0.0] * 3).p_value == 0.25  # 2 of 8 ways
    assert (t_test_p_value([1.0]), t_test_p_value([0.0, 0.0]), t_test_p_value([1.0, 1.0])) == (1.0, 1.0, 0.0)


def test_no_task_in_common_is_said() -> None:
    assert str(paired_difference([], [])) == "no task in common"


def test_a_true_null_is_refused_in_at_most_5_of_100_cases() -> None:
    rng = random.Random(11)
    refused = 0
    for _ in range(400):
        chances = [rng.betavariate(1, 1) for _ in range(25)]
        sides = [[sum(rng.random() < c for _ in range(2)) / 2 for c in chances] for _ in range(2)]
        p_value = paired_difference(*sides).p_value
        assert p_value is not None
        refused += p_value < 0.05
    assert 0.015 <= refused / 400 <= 0.075
