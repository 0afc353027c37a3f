"""PPO: the clipped surrogate with a learned critic and generalized advantages.

Source: PPO, arXiv:1707.06347, equation 7, with GAE, arXiv:1506.02438. Differences from the textbook: an episode is
    a whole rollout (the sampled tokens of all its calls, in order; what the environment wrote between them is
    state, not action); the reward comes at its last token, or, with ``call_rewards``, at the end of each call;
    advantages are whitened over the iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from agl.algorithms.credit import generalized_advantages, whitened
from agl.algorithms.on_policy import OnPolicyAlgorithm
from agl.algorithms.sampling import Batch, SampledRollout
from agl.errors import ConfigError
from agl.learners.base import Learner
from agl.types import PolicyLoss, TrainingSample, Trajectory


@dataclass(frozen=True, kw_only=True)
class PPO(OnPolicyAlgorithm):
    """PPO with a critic; the learner must have one (learner.critic=head or model).

    Args:
        gamma: discount a token.
        gae_lambda: 1 trusts the returns, 0 the critic.
        whiten: shift and scale advantages to mean 0, deviation 1 over the iteration.
        value_coef: weight of the critic's loss.
        value_clip: how far a value may move from the old one in one iteration; null is off.
        call_rewards: credit each call with the reward emitted behind it; the rollout's reward is then not used.
    """

    gamma: float = 1.0
    gae_lambda: float = 1.0
    whiten: bool = True
    value_coef: float = 1.0
    value_clip: float | None = None
    call_rewards: bool = False

    def __post_init__(self) -> None:
        OnPolicyAlgorithm.__post_init__(self)
        for name in ("gamma", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be between 0 and 1")
        if self.value_coef < 0:
            raise ConfigError(f"value_coef={self.value_coef} must not be negative")
        if self.value_clip is not None and not self.value_clip > 0:
            raise ConfigError(f"value_clip={self.value_clip} must be above 0, or null for none")

    @property
    def needs_values(self) -> bool:
        """The critic is the baseline."""
        return True

    def loss(self) -> PolicyLoss:
        """The clipped surrogate and the critic's loss."""
        return replace(OnPolicyAlgorithm.loss(self), value_coef=self.value_coef, value_clip=self.value_clip)

    async def credit(self, batch: Batch, learner: Learner) -> tuple[list[TrainingSample], dict[str, float]]:
        """Give every sampled token its generalized advantage."""
        rollouts = batch.rollouts
        flat = [trajectory for rollout in rollouts for trajectory in rollout.trajectories]
        values = await learner.values(flat)
        value_of = dict(zip(map(id, flat), values, strict=True))
        episodes = [_Episode.of(rollout, value_of, call_rewards=self.call_rewards) for rollout in rollouts]
        advantages = [
            generalized_advantages(e.rewards, e.values, gamma=self.gamma, gae_lambda=self.gae_lambda)
            for e in episodes
        ]
        returns = [
            [advantage + value for advantage, value in zip(steps, episode.values, strict=True)]
            for steps, episode in zip(advantages, episodes, strict=True)
        ]
        credited = whitened(advantages) if self.whiten else advantages
        samples = [
            sample
            for rollout, episode, steps, targets in zip(rollouts, episodes, credited, returns, strict=True)
            for sample in _samples(rollout, episode.places, steps, targets, value_of)
        ]
        return samples, _explained(returns, [episode.values for episode in episodes])


@dataclass(frozen=True, slots=True)
class _Episode:
    """The sampled tokens of one rollout as steps; ``places`` says of each which sequence and position it has."""

    places: list[tuple[int, int]]
    rewards: list[float]
    values: list[float]

    @classmethod
    def of(cls, rollout: SampledRollout, value_of: dict[int, list[float]], *, call_rewards: bool) -> _Episode:
        places = _places(rollout.trajectories)
        values_of_sequence = [value_of[id(trajectory)] for trajectory in rollout.trajectories]
        rewards = [0.0] * len(places)
        if call_rewards:
            step_of = {place: step for step, place in enumerate(places)}
            for sequence, trajectory in enumerate(rollout.trajectories):
                for end, reward in zip(trajectory.call_ends, trajectory.call_rewards, strict=True):
                    rewards[step_of[sequence, end - 1]] += reward or 0.0
        elif rewards:
            rewards[-1] = rollout.reward
        return cls(places, rewards, [values_of_sequence[sequence][position] for sequence, position in places])


def _places(trajectories: Sequence[Trajectory]) -> list[tuple[int, int]]:
    """Sequence and position of every sampled token, call after call as the agent made them."""
    calls: list[tuple[int, int, int, int]] = []
    for sequence, trajectory in enumerate(trajectories):
        numbers = trajectory.call_numbers or [0] * len(trajectory.call_ends)
        begins = [0, *trajectory.call_ends[:-1]]
        calls += [
            (number, sequence, begin, end)
            for number, begin, end in zip(numbers, begins, trajectory.call_ends, strict=True)
        ]
    return [
        (sequence, position)
        for _, sequence, begin, end in sorted(calls)
        for position in range(begin, end)
        if trajectories[sequence].loss_mask[position]
    ]


def _samples(
    rollout: SampledRollout,
    places: Sequence[tuple[int, int]],
    advantages: Sequence[float],
    returns: Sequence[float],
    value_of: dict[int, list[float]],
) -> list[TrainingSample]:
    """Lay the rollout's steps back over its sequences."""
    credit = [[0.0] * len(trajectory.token_ids) for trajectory in rollout.trajectories]
    targets = [[0.0] * len(trajectory.token_ids) for trajectory in rollout.trajectories]
    for (sequence, position), advantage, target in zip(places, advantages, returns, strict=True):
        credit[sequence][position] = advantage
        targets[sequence][position] = target
    return [
        TrainingSample(
            rollout_id=rollout.rollout_id,
            token_ids=trajectory.token_ids,
            loss_mask=trajectory.loss_mask,
            old_logprobs=trajectory.logprobs,
            advantages=credit[sequence],
            temperature=trajectory.temperature,
            policy_version=trajectory.policy_version,
            returns=targets[sequence],
            old_values=value_of[id(trajectory)],
        )
        for sequence, trajectory in enumerate(rollout.trajectories)
    ]


def _explained(returns: Sequence[Sequence[float]], values: Sequence[Sequence[float]]) -> dict[str, float]:
    """How much of the returns' variance the critic explains: 1 is all, 0 no more than a constant."""
    targets = [value for episode in returns for value in episode]
    predicted = [value for episode in values for value in episode]
    if len(targets) < 2:
        return {}
    mean = fmean(targets)
    variance = fmean((value - mean) ** 2 for value in targets)
    residuals = [target - guess for target, guess in zip(targets, predicted, strict=True)]
    offset = fmean(residuals)
    left = fmean((residual - offset) ** 2 for residual in residuals)
    return {"critic/explained_variance": 1 - left / variance if variance > 0 else 0.0}
