"""Sampled rollouts and learners for tests of credit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from agl.algorithms.sampling import Batch, SampledRollout
from agl.errors import ConfigError
from agl.evaluation.counts import RolloutCounts
from agl.types import (
    Loss,
    PolicyLoss,
    PolicyWeights,
    PreferenceLoss,
    TrainingSample,
    Trajectory,
    UpdateReport,
)


def trajectory(
    mask: Sequence[int],
    *,
    rollout_id: str = "r",
    rewards: Sequence[float | None] | None = None,
    numbers: Sequence[int] = (),
) -> Trajectory:
    """A sequence with this mask; token t is 10 + t; a call ends behind each run of ones."""
    ends = [t + 1 for t, bit in enumerate(mask) if bit and (t + 1 == len(mask) or not mask[t + 1])]
    return Trajectory(
        rollout_id=rollout_id,
        agent=None,
        token_ids=[10 + t for t in range(len(mask))],
        loss_mask=list(mask),
        logprobs=[-0.1 * bit for bit in mask],
        temperature=1.0,
        policy_version=2,
        call_ends=ends,
        call_rewards=list(rewards) if rewards else [None] * len(ends),
        call_numbers=numbers,
    )


def sampled(rollout_id: str, group_id: str, reward: float, *masks: Sequence[int]) -> SampledRollout:
    return SampledRollout(
        rollout_id=rollout_id,
        group_id=group_id,
        reward=reward,
        trajectories=[trajectory(mask, rollout_id=rollout_id) for mask in masks],
    )


def batch_of(*groups: list[SampledRollout]) -> Batch:
    num = sum(len(group) for group in groups)
    return Batch(
        groups=list(groups),
        counts=RolloutCounts(enqueued=num, succeeded=num),
        dropped=Counter(),
        num_calls=num,
        num_exact=num,
    )


class ConstantCritic:
    """A learner whose critic says the same everywhere, and whose updates only count."""

    def __init__(self, value: float = 0.0, *, lacks: Literal["critic", "reference"] | None = None) -> None:
        self.value = value
        self.lacks = lacks
        self.policy_version = 0
        self.updates: list[tuple[Sequence[TrainingSample], Any]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def check(self, loss: Loss, *, needs_values: bool) -> None:
        compares = isinstance(loss, PreferenceLoss) or (isinstance(loss, PolicyLoss) and loss.kl_coef)
        if (needs_values and self.lacks == "critic") or (compares and self.lacks == "reference"):
            raise ConfigError(f"there is no {self.lacks}")

    async def logprobs(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        return [list(one.logprobs) for one in trajectories]

    async def values(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        return [[self.value * bit for bit in one.loss_mask] for one in trajectories]

    async def update(self, samples: Sequence[TrainingSample], loss: Loss) -> UpdateReport:
        self.updates.append((samples, loss))
        self.policy_version += bool(samples)
        return UpdateReport(optimizer_steps=int(bool(samples)), policy_version=self.policy_version)

    async def weights(self) -> PolicyWeights:
        return PolicyWeights(policy_version=self.policy_version, tensors={})

    async def save(self, folder: Path) -> None:
        (folder / "version.txt").write_text(str(self.policy_version))

    async def load(self, folder: Path) -> None:
        self.policy_version = int((folder / "version.txt").read_text())

    async def save_policy(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text("{}")
