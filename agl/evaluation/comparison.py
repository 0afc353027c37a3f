"""Two contestants on the same tasks: the difference with its interval, and the tasks that flipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from agl.evaluation.report import Run, TaskRuns
from agl.evaluation.statistics import PairedDifference, paired_difference
from agl.types import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A task that one side passes and the other does not.

    Args:
        task_id: of the task.
        task: what the agent was given.
        first: its mean reward on the first side.
        second: and on the second.
        first_rollout_id: a rollout of the first side that shows it: the best where it passes, else the worst.
        second_rollout_id: likewise of the second.
    """

    task_id: str
    task: Json
    first: float
    second: float
    first_rollout_id: str
    second_rollout_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The first side against the second.

    Args:
        difference: of the mean rewards, first minus second, over the tasks with a reward on both sides.
        better: tasks with a higher mean reward on the first side.
        worse: tasks with a lower one.
        equal: tasks with the same.
        unpaired: tasks without a reward on one of the sides.
        gained: tasks that only the first side passes, the largest difference first.
        lost: tasks that only the second side passes, likewise.
    """

    difference: PairedDifference
    better: int
    worse: int
    equal: int
    unpaired: int
    gained: list[Flip]
    lost: list[Flip]

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return asdict(self)


def compare(first: Sequence[TaskRuns], second: Sequence[TaskRuns], *, threshold: float) -> Comparison:
    """Compare two sides, task by task.

    A task is passed by a side when more than half of its rewards there are at least ``threshold``.
    """
    others = {task.task_id: task for task in second}
    pairs = [
        (task, others[task.task_id])
        for task in first
        if task.rewards and task.task_id in others and others[task.task_id].rewards
    ]
    means = [(fmean(one.rewards), fmean(other.rewards)) for one, other in pairs]
    all_tasks = {task.task_id for task in (*first, *second)}
    gained: list[Flip] = []
    lost: list[Flip] = []
    for one, other in pairs:
        passed, other_passed = _passes(one, threshold), _passes(other, threshold)
        if passed != other_passed:
            (gained if passed else lost).append(_flip(one, other, first_passes=passed))
    return Comparison(
        difference=paired_difference([a for a, _ in means], [b for _, b in means]),
        better=sum(a > b for a, b in means),
        worse=sum(a < b for a, b in means),
        equal=sum(a == b for a, b in means),
        unpaired=len(all_tasks) - len(pairs),
        gained=sorted(gained, key=lambda flip: flip.second - flip.first),
        lost=sorted(lost, key=lambda flip: flip.first - flip.second),
    )


def _passes(task: TaskRuns, threshold: float) -> bool:
    return sum(reward >= threshold for reward in task.rewards) * 2 > len(task.rewards)


def _flip(one: TaskRuns, other: TaskRuns, *, first_passes: bool) -> Flip:
    return Flip(
        task_id=one.task_id,
        task=one.task,
        first=fmean(one.rewards),
        second=fmean(other.rewards),
        first_rollout_id=_example(one, best=first_passes).rollout_id,
        second_rollout_id=_example(other, best=not first_passes).rollout_id,
    )


def _example(task: TaskRuns, *, best: bool) -> Run:
    """The first of the rollouts with the highest reward, or the lowest."""
    with_reward = [run for run in task.runs if run.reward is not None]
    return (max if best else min)(with_reward, key=lambda run: run.reward or 0.0)
