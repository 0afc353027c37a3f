"""What each learner decides in the same way about its optimizer steps: minibatches, token weights, learning rate."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, Protocol, TypeVar

from agl.types.sample import Aggregation

Schedule = Literal["constant", "linear", "cosine"]
T = TypeVar("T")


class RateSettings(Protocol):
    """What ``learning_rate_at`` reads."""

    @property
    def learning_rate(self) -> float:
        """Of a warm optimizer at the begin of the run."""
        ...

    @property
    def warmup_steps(self) -> int:
        """Optimizer steps in which the rate rises from 0."""
        ...

    @property
    def schedule(self) -> Schedule:
        """What the rate does over the run."""
        ...


def learning_rate_at(step: int, progress: float, settings: RateSettings) -> float:
    """Return the policy's learning rate of its optimizer step ``step``, counted from 0.

    It rises in ``warmup_steps`` equal steps to ``learning_rate`` times what the schedule leaves of it: all, or a part
    that falls with the run's ``progress`` from 1 at 0 to 0 at 1, in a straight line or half a cosine.
    """
    warm = min((step + 1) / settings.warmup_steps, 1.0) if settings.warmup_steps else 1.0
    left = {"constant": 1.0, "linear": 1.0 - progress, "cosine": 0.5 * (1.0 + math.cos(math.pi * progress))}
    return settings.learning_rate * warm * left[settings.schedule]


def minibatches(
    rows: Sequence[T], at_most: int | None, rng: random.Random, *, unit: Callable[[T], str]
) -> list[list[T]]:
    """Return all rows in random order of their units (rollouts, pairs), cut into minibatches of at most so many units.

    The units are spread evenly: 100 at most 32 at a time are four minibatches of 25, never 32, 32, 32 and 4, because a
    step on few is as long as any other and mostly noise.
    """
    by_unit: dict[str, list[T]] = {}
    for row in rows:
        by_unit.setdefault(unit(row), []).append(row)
    groups = list(by_unit.values())
    rng.shuffle(groups)
    count = 1 if at_most is None else -(-len(groups) // at_most)
    borders = [len(groups) * index // count for index in range(count + 1)]
    return [[row for group in groups[start:end] for row in group] for start, end in pairwise(borders)]


def token_weights(
    rollout_ids: Sequence[str], num_tokens: Sequence[int], weights: Sequence[float], aggregation: Aggregation
) -> list[float]:
    """Return, for each sequence of a minibatch, the weight of each of its sampled tokens in the loss.

    ``token_mean`` divides by the minibatch's tokens. ``rollout_mean`` divides by the tokens of the rollout,
    over all its sequences, and by the number of rollouts. ``weights`` multiply on top and are not normalised
    away.
    """
    if aggregation == "token_mean":
        total = sum(num_tokens)
        return [weight / total for weight in weights]
    tokens_of: dict[str, int] = {}
    for rollout_id, count in zip(rollout_ids, num_tokens, strict=True):
        tokens_of[rollout_id] = tokens_of.get(rollout_id, 0) + count
    return [
        weight / (tokens_of[rollout_id] * len(tokens_of))
        for rollout_id, weight in zip(rollout_ids, weights, strict=True)
    ]
