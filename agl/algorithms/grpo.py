"""GRPO: the reward against the mean of its group, no critic.

Source: arXiv:2402.03300. Differences: the baseline is over rollouts, not over calls, so a rollout with many calls
    does not weigh more in its group; groups whose rewards are all equal are left out and counted;
    ``scale_by_std=false`` is Dr. GRPO (arXiv:2503.20783).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agl.algorithms.credit import group_advantages
from agl.algorithms.on_policy import OnPolicyAlgorithm
from agl.algorithms.sampling import Batch
from agl.errors import ConfigError
from agl.learners.base import Learner
from agl.types import PolicyLoss, TrainingSample
from agl.types.sample import Aggregation


@dataclass(frozen=True, kw_only=True)
class GRPO(OnPolicyAlgorithm):
    """Group-relative policy optimization.

    Args:
        scale_by_std: divide by the standard deviation of the group's rewards.
        min_valid_per_group: a single rollout has nothing to be compared with, so at least 2.
        aggregation: ``token_mean`` weighs every token alike, ``rollout_mean`` every rollout.
    """

    min_valid_per_group: int = 2
    scale_by_std: bool = True
    aggregation: Aggregation = "token_mean"

    def __post_init__(self) -> None:
        OnPolicyAlgorithm.__post_init__(self)
        if self.group_size < 2:
            raise ConfigError(
                f"group_size={self.group_size}: GRPO compares rollouts of one task, so it needs at least 2"
            )

    def loss(self) -> PolicyLoss:
        """The clipped surrogate."""
        return replace(OnPolicyAlgorithm.loss(self), aggregation=self.aggregation)

    async def credit(self, batch: Batch, learner: Learner) -> tuple[list[TrainingSample], dict[str, float]]:
        """Give every sampled token of a rollout the rollout's advantage within its group."""
        del learner
        samples: list[TrainingSample] = []
        flat_groups = 0
        for group in batch.groups:
            rewards = [rollout.reward for rollout in group]
            if max(rewards) - min(rewards) < 1e-9:
                flat_groups += 1
                continue
            advantages = group_advantages(rewards, scale_by_std=self.scale_by_std)
            for rollout, advantage in zip(group, advantages, strict=True):
                samples += [
                    TrainingSample(
                        rollout_id=rollout.rollout_id,
                        token_ids=trajectory.token_ids,
                        loss_mask=trajectory.loss_mask,
                        old_logprobs=trajectory.logprobs,
                        advantages=[advantage * mask for mask in trajectory.loss_mask],
                        temperature=trajectory.temperature,
                        policy_version=trajectory.policy_version,
                    )
                    for trajectory in rollout.trajectories
                ]
        fraction = flat_groups / len(batch.groups) if batch.groups else 0.0
        return samples, {
            "groups/zero_variance": fraction,
            "groups/used": float(len(batch.groups) - flat_groups),
        }
