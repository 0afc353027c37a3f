"""Measure an agent: every task some times under given resources, as ordinary rollouts in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agl.evaluation.counts import RolloutCounts, count_rollouts
from agl.evaluation.rollouts import run_rollouts
from agl.evaluation.statistics import MeanReward, mean_reward
from agl.evaluation.waiting import OnWait, no_words
from agl.store.base import LightningStore
from agl.types import Json, Mode, Rollout, RolloutConfig, RolloutRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of one evaluation.

    Args:
        name: what was evaluated, e.g. ``val/reward_greedy``.
        reward: mean and interval; failures and missing rewards are left out of it and stand in ``counts``.
        counts: what became of the rollouts.
        rollouts: one list a task, in the order of the tasks.
    """

    name: str
    reward: MeanReward
    counts: RolloutCounts
    rollouts: list[list[Rollout]]

    def reward_of_task(self, index: int) -> float | None:
        """The task's mean reward, None when it has none."""
        rewards = _rewards(self.rollouts[index])
        return sum(rewards) / len(rewards) if rewards else None


async def evaluate(
    store: LightningStore,
    tasks: Sequence[Json],
    *,
    name: str,
    id_prefix: str,
    resources_id: str,
    seed: int,
    sampling: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    mode: Mode = "val",
    repeats: int = 1,
    config: RolloutConfig | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
    on_wait: OnWait = no_words,
) -> Evaluation:
    """Run every task ``repeats`` times and return the rewards.

    ``id_prefix`` makes the rollout ids, so that a repeated evaluation is answered from the store, as long as tasks,
    seed and ``sampling`` (the request parameters in the resources) are the same.
    """
    requests = [
        RolloutRequest(
            task=task,
            rollout_id=f"{id_prefix}-{index}-{repeat}",
            run_id=run_id,
            mode=mode,
            group_id=f"{id_prefix}-{index}",
            resources_id=resources_id,
            config=config or RolloutConfig(),
            metadata={"seed": seed + index * repeats + repeat, "sampling": dict(sampling or {})},
        )
        for index, task in enumerate(tasks)
        for repeat in range(repeats)
    ]
    flat = await run_rollouts(store, requests, on_progress=on_progress, on_wait=on_wait)
    rollouts = [flat[start : start + repeats] for start in range(0, len(flat), repeats)]
    return Evaluation(
        name=name,
        reward=mean_reward([_rewards(group) for group in rollouts]),
        counts=count_rollouts(flat),
        rollouts=rollouts,
    )


def _rewards(rollouts: Sequence[Rollout]) -> list[float]:
    return [
        rollout.reward for rollout in rollouts if rollout.status == "succeeded" and rollout.reward is not None
    ]
