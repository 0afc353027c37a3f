"""Means with intervals, from rewards that are grouped by task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean


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


def mean_reward(rewards_by_task: Sequence[Sequence[float]], *, confidence: float = 0.95) -> MeanReward:
    """Return the mean of the task means with a normal interval clustered by task.

    The standard error is that of the task means, sd / sqrt(tasks) (Miller 2024, arXiv:2411.00640, section 2.2, with
    equal weights), so repeated rollouts of one task are not taken for independent evidence. Tasks without a reward
    are left out.
    """
    means = [fmean(rewards) for rewards in rewards_by_task if rewards]
    num_rewards = sum(len(rewards) for rewards in rewards_by_task)
    if not means:
        return MeanReward(mean=None, low=None, high=None, num_tasks=0, num_rewards=0)
    mean = fmean(means)
    if len(means) == 1:
        return MeanReward(mean=mean, low=None, high=None, num_tasks=1, num_rewards=num_rewards)
    variance = sum((value - mean) ** 2 for value in means) / (len(means) - 1)
    margin = NormalDist().inv_cdf(0.5 + confidence / 2) * math.sqrt(variance / len(means))
    return MeanReward(
        mean=mean, low=mean - margin, high=mean + margin, num_tasks=len(means), num_rewards=num_rewards
    )
