"""Samples as the Tinker service takes them: each input token with the token that follows it, and the loss's inputs.

The service sums its losses over all tokens. They are proportional to the advantages, or weights, that come with the
tokens (the clipped surrogate too: min(r A, clip(r) A) times w > 0 is the same of w A), so the weight of a token in our
mean travels in these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agl.errors import ConfigError
from agl.types.sample import LikelihoodLoss, PolicyLoss, PreferenceLoss, TrainingSample, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One sequence; the numbers are of its own sampled tokens only, one each.

    Args:
        rollout_id: whose sequence it is.
        token_ids: up to its last sampled token.
        positions: where the sampled tokens stand in it.
        weight: multiplies the sequence's loss.
        old_logprobs: of the policy that sampled them, None where the loss does not ask.
        advantages: None likewise.
    """

    rollout_id: str
    token_ids: Sequence[int]
    positions: Sequence[int]
    weight: float = 1.0
    old_logprobs: Sequence[float] | None = None
    advantages: Sequence[float] | None = None

    @property
    def inputs(self) -> list[int]:
        """What the model reads."""
        return list(self.token_ids[:-1])

    @property
    def targets(self) -> list[int]:
        """What follows each of them."""
        return list(self.token_ids[1:])

    def spread(self, numbers: Sequence[float]) -> list[float]:
        """Return one number for each target: those given for the sampled tokens, 0 between."""
        line = [0.0] * (len(self.token_ids) - 1)
        for position, number in zip(self.positions, numbers, strict=True):
            line[position - 1] = number
        return line

    def picked(self, line: Sequence[float]) -> list[float]:
        """Return the numbers of the sampled tokens, of a line with one for each target."""
        return [line[position - 1] for position in self.positions]


def row_from_trajectory(sequence: Trajectory | TrainingSample) -> Row | None:
    """Return the sequence as a row, or None when no token of it was sampled.

    Raises:
        ValueError: lengths differ, or the first token counts as sampled.
        ConfigError: it was sampled at another temperature than the service trains at.
    """
    where = f"rollout {sequence.rollout_id}"
    if len(sequence.loss_mask) != len(sequence.token_ids):
        raise ValueError(f"{where}: {len(sequence.token_ids)} token_ids, {len(sequence.loss_mask)} loss_mask")
    positions = [position for position, mask in enumerate(sequence.loss_mask) if mask]
    if not positions:
        return None
    if positions[0] == 0:
        raise ValueError(f"{where}: the first token cannot be a sampled one, nothing stands before it")
    if sequence.temperature != 1:
        raise ConfigError(
            f"{where} was sampled at temperature {sequence.temperature:g}, but the Tinker service knows the policy at "
            "temperature 1 only: set algorithm.temperature=1"
        )
    return Row(
        rollout_id=sequence.rollout_id,
        token_ids=list(sequence.token_ids[: positions[-1] + 1]),
        positions=positions,
        weight=sequence.weight if isinstance(sequence, TrainingSample) else 1.0,
    )


def row_from_sample(sample: TrainingSample) -> Row | None:
    """Return the sample as a row, or None when no token of it was sampled.

    Raises:
        ValueError: as ``row_from_trajectory``, or a per-token list is not as long as the sequence.
        ConfigError: as ``row_from_trajectory``, or the sample is for a value model.
    """
    row = row_from_trajectory(sample)
    if row is None:
        return None
    if sample.returns is not None:
        raise ConfigError(
            "the algorithm trains a value model, which the Tinker service has not: use algorithm=grpo"
        )

    def column(name: str, values: Sequence[float] | None) -> list[float] | None:
        if values is None:
            return None
        if len(values) != len(sample.token_ids):
            raise ValueError(
                f"rollout {sample.rollout_id}: {len(values)} {name} for {len(sample.token_ids)} token_ids"
            )
        return [float(values[position]) for position in row.positions]

    return Row(
        rollout_id=row.rollout_id,
        token_ids=row.token_ids,
        positions=row.positions,
        weight=row.weight,
        old_logprobs=column("old_logprobs", sample.old_logprobs),
        advantages=column("advantages", sample.advantages),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLoss:
    """What the service calls a loss, and its settings."""

    name: str
    settings: Mapping[str, float] | None = None


def remote_loss(loss: PolicyLoss | LikelihoodLoss) -> RemoteLoss:
    """Return the service's name of a loss: ``ppo`` clips the ratio, ``importance_sampling`` does not."""
    if isinstance(loss, LikelihoodLoss):
        return RemoteLoss(name="cross_entropy")
    if loss.clip_low >= 1 and math.isinf(loss.clip_high):  # a ratio is never below 0
        return RemoteLoss(name="importance_sampling")
    borders = {"clip_low_threshold": 1.0 - loss.clip_low, "clip_high_threshold": 1.0 + loss.clip_high}
    return RemoteLoss(name="ppo", settings=borders)


def loss_inputs(
    row: Row, token_weight: float, loss: PolicyLoss | LikelihoodLoss
) -> dict[str, list[int] | list[float]]:
    """Return what the service's loss wants to know of a row.

    Args:
        row: of the minibatch.
        token_weight: of each of its sampled tokens in the minibatch's loss.
        loss: whose inputs these are.

    Raises:
        ValueError: the row lacks its old logprobs or advantages.
    """
    if isinstance(loss, LikelihoodLoss):
        return {"target_tokens": row.targets, "weights": row.spread([token_weight] * len(row.positions))}
    if row.old_logprobs is None or row.advantages is None:
        raise ValueError(f"rollout {row.rollout_id} has no old_logprobs or no advantages")
    return {
        "target_tokens": row.targets,
        "logprobs": row.spread(row.old_logprobs),
        "advantages": row.spread([token_weight * advantage for advantage in row.advantages]),
    }


def check_loss(loss: PolicyLoss | LikelihoodLoss | PreferenceLoss, *, needs_values: bool) -> None:
    """Refuse what the service's losses do not have.

    Raises:
        ConfigError: the message names the setting.
    """
    if needs_values:
        raise ConfigError(
            "the algorithm needs values, and the Tinker service trains no value model: use algorithm=grpo, "
            "or learner=torch"
        )
    if isinstance(loss, PreferenceLoss):
        raise ConfigError(
            "learner=tinker has no loss for pairs of answers: use learner=torch for algorithm=dpo, or algorithm=sft"
        )
    if isinstance(loss, LikelihoodLoss):
        return
    for name, without in (("kl_coef", 0.0), ("entropy_coef", 0.0), ("dual_clip", None), ("max_kl", None)):
        value = getattr(loss, name)
        if value != without:
            raise ConfigError(
                f"algorithm.{name}={value}: the Tinker service's losses have none; leave it out, or use learner=torch"
            )
