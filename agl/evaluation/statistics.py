"""Numbers from rewards that are grouped by task: means with intervals, pass@k, and differences between pairs.

Rollouts of one task are no independent evidence, so the task is the unit everywhere: its mean is one number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean
from typing import Literal

from agl.evaluation.student import t_quantile, t_two_sided

CONFIDENCE = 0.95
MAX_SUMS = 2**16
"""Different sums of signed differences that are told apart, and ..."""
MAX_ADDITIONS = 4_000_000
"""... additions made (about a second) before the permutation test is given up for the t test."""

Test = Literal["permutation", "t"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanReward:
    """A mean over tasks with its 95% interval.

    Args:
        mean: of the task means; None when no task has a reward.
        low: lower end of the interval.
        high: upper end of the interval.
        num_tasks: tasks with at least one reward.
        num_rewards: rewards in all.
    """

    mean: float | None
    low: float | None
    high: float | None
    num_tasks: int
    num_rewards: int

    def __str__(self) -> str:
        if self.mean is None:
            return "no rewards"
        if self.low is None or self.high is None:
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean_reward(rewards_by_task: Sequence[Sequence[float]], *, confidence: float = CONFIDENCE) -> MeanReward:
    """Return the mean of the task means with an interval clustered by task.

    The standard error is that of the task means, sd / sqrt(tasks) (Miller 2024, arXiv:2411.00640, section 2.2, with
    equal weights), times Student's t in place of the normal quantile there: with ten tasks that one covers the truth
    in 92 of 100 cases. Tasks without a reward are left out.
    """
    means = [fmean(rewards) for rewards in rewards_by_task if rewards]
    num_rewards = sum(len(rewards) for rewards in rewards_by_task)
    if not means:
        return MeanReward(mean=None, low=None, high=None, num_tasks=0, num_rewards=0)
    mean, margin = fmean(means), _margin(means, confidence)
    return MeanReward(
        mean=mean,
        low=None if margin is None else mean - margin,
        high=None if margin is None else mean + margin,
        num_tasks=len(means),
        num_rewards=num_rewards,
    )


def _margin(values: Sequence[float], confidence: float) -> float | None:
    """Half the t interval of their mean; None of fewer than two."""
    if len(values) < 2:
        return None
    return t_quantile(0.5 + confidence / 2, len(values) - 1) * _standard_error(values)


def _standard_error(values: Sequence[float]) -> float:
    mean = fmean(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))


def pass_at_k(num_rollouts: int, num_passed: int, k: int) -> float:
    """Return the chance that at least one of ``k`` rollouts of a task passes: 1 - C(n - c, k) / C(n, k).

    The unbiased estimate of Chen et al. 2021 (arXiv:2107.03374, equation 1), as a product.

    Raises:
        ValueError: fewer than ``k`` rollouts, or more that passed than there are.
    """
    if not 1 <= k <= num_rollouts or not 0 <= num_passed <= num_rollouts:
        raise ValueError(f"no pass@{k} of {num_passed} that passed of {num_rollouts} rollouts")
    failed = num_rollouts - num_passed
    return 1 - math.prod(max(0, failed - chosen) / (num_rollouts - chosen) for chosen in range(k))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """How much more one side got than the other on the same tasks.

    Args:
        mean: of the differences; None without a task in common.
        low: lower end of the 95% interval.
        high: upper end of the interval.
        p_value: two-sided; None without a task in common.
        num_tasks: in common.
        test: what ``p_value`` is of.
    """

    mean: float | None
    low: float | None
    high: float | None
    p_value: float | None
    num_tasks: int
    test: Test = "permutation"

    def __str__(self) -> str:
        if self.mean is None or self.p_value is None:
            return "no task in common"
        interval = "" if self.low is None or self.high is None else f" [{self.low:+.3f}, {self.high:+.3f}]"
        p_value = "p < 0.0001" if self.p_value < 0.0001 else f"p = {self.p_value:.4f}"
        return f"{self.mean:+.3f}{interval}, {p_value}"


def paired_difference(
    first: Sequence[float], second: Sequence[float], *, confidence: float = CONFIDENCE
) -> PairedDifference:
    """Return ``first`` minus ``second``, task by task, with a t interval and the p-value of no difference.

    Pairs take the difficulty of the tasks out of the variance (Miller 2024, arXiv:2411.00640, section 4.2). The p-value
    is that of Fisher's permutation test: of all ways to swap the two sides within tasks, how many give a mean at least
    as far from 0. It is exact for any distribution and any number of tasks, also where rewards are 0 or 1. With so many
    different values that these ways cannot be told apart in time it is the paired t test, which it then equals.

    Raises:
        ValueError: the sides differ in length.
    """
    differences = [one - other for one, other in zip(first, second, strict=True)]
    if not differences:
        return PairedDifference(mean=None, low=None, high=None, p_value=None, num_tasks=0)
    mean, margin = fmean(differences), _margin(differences, confidence)
    exact = sign_flip_p_value(differences)
    return PairedDifference(
        mean=mean,
        low=None if margin is None else mean - margin,
        high=None if margin is None else mean + margin,
        p_value=t_test_p_value(differences) if exact is None else exact,
        num_tasks=len(differences),
        test="t" if exact is None else "permutation",
    )


def sign_flip_p_value(differences: Sequence[float]) -> float | None:
    """Return the share of all signs of the differences whose sum is at least as far from 0 as theirs.

    None where the sums are too many: differences of rewards in steps, such as 0 and 1, have few whatever their number.
    """
    steps, blur = _steps([difference for difference in differences if difference])
    sums: dict[int, float] = {0: 1.0}
    additions = 0
    for step in steps:
        additions += 2 * len(sums)
        flipped: dict[int, float] = {}
        for value, share in sums.items():
            flipped[value + step] = flipped.get(value + step, 0.0) + share / 2
            flipped[value - step] = flipped.get(value - step, 0.0) + share / 2
        if additions > MAX_ADDITIONS or len(flipped) > MAX_SUMS:
            return None
        sums = flipped
    seen = abs(sum(steps)) - blur
    return min(1.0, math.fsum(share for value, share in sums.items() if abs(value) >= seen))


def _steps(differences: Sequence[float]) -> tuple[list[int], int]:
    """Return the differences as whole numbers of one unit, and by how many units their sums may be rounded.

    Means of a few rewards in steps are fractions with small denominators, so that equal sums are equal numbers.
    """
    fractions = [Fraction(difference).limit_denominator(1000) for difference in differences]
    if all(math.isclose(f, d, rel_tol=1e-9) for f, d in zip(fractions, differences, strict=True)):
        unit = math.lcm(*(fraction.denominator for fraction in fractions))
        return [int(fraction * unit) for fraction in fractions], 0
    largest = max(map(abs, differences))
    return [round(difference / largest * 1e12) for difference in differences], len(differences)


def t_test_p_value(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of the paired t test; 1 of fewer than two differences, or where all are 0."""
    if len(differences) < 2:
        return 1.0
    mean, error = fmean(differences), _standard_error(differences)
    if not error:
        return 1.0 if not mean else 0.0
    return t_two_sided(mean / error, len(differences) - 1)
