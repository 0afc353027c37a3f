"""Credit: rewards in, advantages out. Pure functions on plain lists."""

from __future__ import annotations

import math
from collections.abc import Sequence


def group_advantages(
    rewards: Sequence[float], *, scale_by_std: bool = True, epsilon: float = 1e-6
) -> list[float]:
    """Return each reward minus its group's mean, divided by the group's standard deviation.

    Source: GRPO, arXiv:2402.03300, section 4.1.2 (outcome supervision), with the sample standard deviation (n - 1).
    ``scale_by_std=False`` is Dr. GRPO, arXiv:2503.20783, section 3.2. A group without variance, or of one, gets
    zeros.
    """
    if len(rewards) < 2:
        return [0.0] * len(rewards)
    mean = sum(rewards) / len(rewards)
    centred = [reward - mean for reward in rewards]
    if not scale_by_std:
        return centred
    deviation = math.sqrt(sum(value * value for value in centred) / (len(rewards) - 1))
    return [value / (deviation + epsilon) if deviation > epsilon else 0.0 for value in centred]


def generalized_advantages(
    rewards: Sequence[float], values: Sequence[float], *, gamma: float, gae_lambda: float
) -> list[float]:
    """Return the generalized advantage estimate of each step of one finished episode.

    delta_t = r_t + gamma * V_{t+1} - V_t with V = 0 behind the last step, and A_t = delta_t + gamma * lambda * A_{t+1}.
    Source: GAE, arXiv:1506.02438, equations 11, 12 and 16.
    """
    advantages = [0.0] * len(rewards)
    following_value = following_advantage = 0.0
    for step in reversed(range(len(rewards))):
        delta = rewards[step] + gamma * following_value - values[step]
        following_advantage = delta + gamma * gae_lambda * following_advantage
        following_value = values[step]
        advantages[step] = following_advantage
    return advantages


def whitened(advantages: Sequence[Sequence[float]], *, epsilon: float = 1e-8) -> list[list[float]]:
    """Return the advantages shifted and scaled to mean 0 and sample standard deviation 1 over all steps of all
    episodes.

    Fewer than two steps, or steps that are all equal, are only shifted.
    """
    flat = [value for episode in advantages for value in episode]
    mean = sum(flat) / len(flat) if flat else 0.0
    deviation = math.sqrt(sum((value - mean) ** 2 for value in flat) / max(len(flat) - 1, 1))
    scale = deviation + epsilon if deviation > epsilon else 1.0
    return [[(value - mean) / scale for value in episode] for episode in advantages]
