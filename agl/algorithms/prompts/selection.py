"""Which tasks choose between candidates, in what portions, and how a candidate stands on them. Pure."""

from __future__ import annotations

import math
from random import Random

from agl.algorithms.prompts.scoring import Scores
from agl.errors import ConfigError

MIN_SELECTION = 2


def split_tasks(num_tasks: int, num_selection: int, seed: int) -> tuple[list[int], list[int]]:
    """Return the numbers of the tasks for feedback and for selection: drawn once, without overlap.

    Raises:
        ConfigError: there are too few tasks.
    """
    if num_tasks < num_selection + 1:
        raise ConfigError(
            f"algorithm.val_batch_size={num_selection} leaves none of {num_tasks} training tasks to learn from;"
            " give more tasks, or a smaller one"
        )
    order = list(range(num_tasks))
    Random(f"{seed}/split").shuffle(order)
    return order[num_selection:], order[:num_selection]


def rungs(num_tasks: int) -> list[int]:
    """Return on how many of the selection tasks each turn of successive halving looks: a quarter, half, all."""
    return sorted({max(MIN_SELECTION, num_tasks // 4), max(MIN_SELECTION, num_tasks // 2), num_tasks})


def most_in_halving(num_new: int, num_known: int, *, keep: int, num_tasks: int) -> int:
    """Return how many rollouts successive halving takes at most, where the known candidates have all of theirs."""
    left, done, most = num_new + num_known, 0, 0
    for size in rungs(num_tasks):
        if left <= keep and size < num_tasks:
            continue
        most += min(left, num_new) * (size - done)
        done, left = size, max(keep, math.ceil(left / 2))
    return most


def standing(scores: Scores, *, worst: float, max_bad_fraction: float) -> float:
    """Return the number by which candidates are compared; minus infinity for one that is out.

    A rollout that failed takes the worst reward that was seen in the search (worst-rank scores, Lachin 1999): left out,
    a candidate would gain by failing on hard tasks, and a 0 may be a good reward elsewhere. It is a rank and no reward:
    the reported means have the rewards only.

    Args:
        scores: of the candidate.
        worst: the lowest reward seen so far.
        max_bad_fraction: a candidate with more failures is out.
    """
    if scores.mean is None or scores.bad_fraction > max_bad_fraction:
        return -math.inf
    ranked = [worst if reward is None else reward for reward in scores.rewards.values()]
    return sum(ranked) / len(ranked)
