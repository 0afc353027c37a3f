"""What an evaluation found, of rollouts as they ended: rewards, pass@k, dimensions, failures, usage and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from agl.evaluation.counts import RolloutCounts, cause_of, count_rollouts
from agl.evaluation.statistics import MeanReward, mean_reward, pass_at_k
from agl.types import Json, Rollout

if TYPE_CHECKING:
    from agl.proxy.accounts import Account

NO_REWARD = "no reward"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One rollout of a task, as far as a report needs it.

    Args:
        rollout_id: to look at.
        reward: None where it failed or gave none.
        cause: why there is no reward; None where there is one.
    """

    rollout_id: str
    reward: float | None
    cause: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRuns:
    """The rollouts of one task.

    Args:
        task_id: of the task itself: the same wherever it is evaluated.
        task: what the agent was given.
        runs: in the order of the repeats.
    """

    task_id: str
    task: Json
    runs: list[Run]

    @property
    def rewards(self) -> list[float]:
        """Those there are."""
        return [run.reward for run in self.runs if run.reward is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """One contestant on some tasks.

    Args:
        contestant: who was evaluated, for people.
        reward: mean of the task means.
        pass_at: the chance that one of so many rollouts of a task passes, by that number: means over tasks with as
            many rewards.
        dimensions: like ``reward``, for each named part of it.
        counts: what became of the rollouts.
        tasks: in the order of the data.
        threshold: a reward of at least this passes.
        usage: calls, tokens and cost; None where nobody counted.
        seconds: from the first claim of a rollout to the last end; None where nothing ran.
        rollout_seconds: mean time of a rollout.
        resources_id: what agents got.
    """

    contestant: str
    reward: MeanReward
    pass_at: Mapping[int, MeanReward]
    dimensions: Mapping[str, MeanReward]
    counts: RolloutCounts
    tasks: list[TaskRuns]
    threshold: float
    usage: Account | None = None
    seconds: float | None = None
    rollout_seconds: float | None = None
    resources_id: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        counts = {**asdict(self.counts), "failed": dict(self.counts.failed)}
        return {
            "contestant": self.contestant,
            "resources_id": self.resources_id,
            "reward": asdict(self.reward),
            "threshold": self.threshold,
            "pass_at": {str(k): asdict(value) for k, value in self.pass_at.items()},
            "dimensions": {name: asdict(value) for name, value in self.dimensions.items()},
            "rollouts": counts,
            "usage": None if self.usage is None else self.usage.as_json(),
            "seconds": self.seconds,
            "rollout_seconds": self.rollout_seconds,
            "tasks": [asdict(task) for task in self.tasks],
        }


def report_on(
    contestant: str,
    tasks: Sequence[tuple[str, Sequence[Rollout]]],
    *,
    threshold: float,
    pass_at: Sequence[int],
    usage: Account | None = None,
    resources_id: str | None = None,
) -> EvaluationReport:
    """Return the report on finished rollouts.

    Args:
        contestant: who was evaluated.
        tasks: each one's id and its rollouts.
        threshold: a reward of at least this passes.
        pass_at: numbers of rollouts.
        usage: what their calls took.
        resources_id: what their agents got.
    """
    flat = [rollout for _, rollouts in tasks for rollout in rollouts]
    runs = [
        TaskRuns(task_id=task_id, task=rollouts[0].task, runs=[_run(rollout) for rollout in rollouts])
        for task_id, rollouts in tasks
    ]
    begins = [rollout.started_at for rollout in flat if rollout.started_at is not None]
    ends = [rollout.finished_at for rollout in flat if rollout.finished_at is not None]
    took = [
        rollout.finished_at - rollout.started_at
        for rollout in flat
        if rollout.started_at is not None and rollout.finished_at is not None
    ]
    return EvaluationReport(
        contestant=contestant,
        reward=mean_reward([task.rewards for task in runs]),
        pass_at={k: _pass_at(runs, k, threshold) for k in pass_at},
        dimensions=_dimensions([rollouts for _, rollouts in tasks]),
        counts=count_rollouts(flat),
        tasks=runs,
        threshold=threshold,
        usage=usage,
        seconds=max(ends) - min(begins) if begins and ends else None,
        rollout_seconds=sum(took) / len(took) if took else None,
        resources_id=resources_id,
    )


def _run(rollout: Rollout) -> Run:
    if rollout.status == "succeeded" and rollout.reward is not None:
        return Run(rollout_id=rollout.rollout_id, reward=rollout.reward)
    causes = {"succeeded": NO_REWARD, "cancelled": "cancelled"}
    return Run(
        rollout_id=rollout.rollout_id, reward=None, cause=causes.get(rollout.status) or cause_of(rollout)
    )


def _pass_at(tasks: Sequence[TaskRuns], k: int, threshold: float) -> MeanReward:
    """Over tasks with at least ``k`` rewards: an error is neither a pass nor a failure. A chance is between 0 and 1."""
    found = mean_reward(
        [
            [pass_at_k(len(task.rewards), sum(reward >= threshold for reward in task.rewards), k)]
            for task in tasks
            if len(task.rewards) >= k
        ]
    )
    if found.low is None or found.high is None:
        return found
    return replace(found, low=max(0.0, found.low), high=min(1.0, found.high))


def _dimensions(tasks: Sequence[Sequence[Rollout]]) -> dict[str, MeanReward]:
    named = [
        [rollout.reward_dimensions for rollout in rollouts if rollout.status == "succeeded"]
        for rollouts in tasks
    ]
    names = dict.fromkeys(name for group in named for dimensions in group for name in dimensions)
    return {
        name: mean_reward([[one[name] for one in group if name in one] for group in named]) for name in names
    }


def task_runs_from_json(values: Sequence[Mapping[str, Any]]) -> list[TaskRuns]:
    """Return the tasks of a report that was written down.

    Raises:
        KeyError: it lacks something.
        TypeError: it is of another shape.
    """
    return [
        TaskRuns(
            task_id=value["task_id"],
            task=value["task"],
            runs=[
                Run(rollout_id=run["rollout_id"], reward=run["reward"], cause=run["cause"])
                for run in value["runs"]
            ],
        )
        for value in values
    ]
