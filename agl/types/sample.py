"""What flows from spans to the learner: triplets, trajectories, training samples, and the loss that is asked for.

T is the number of tokens of one sequence, prompt and response and what lies between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Aggregation = Literal["token_mean", "rollout_mean"]
KlEstimator = Literal["k1", "k2", "k3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Triplet:
    """One call as data: what the engine saw, what it sampled and how likely that was."""

    rollout_id: str
    attempt_id: str
    span_id: str
    sequence_id: int
    agent: str | None
    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    response_logprobs: Sequence[float]
    temperature: float
    policy_version: int
    finish_reason: str | None
    reward: float | None = None
    """The call's own reward where the agent emitted one behind it; the rollout's reward is elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """The calls of one agent in one attempt whose token ids continue each other, merged into one sequence.

    ``loss_mask`` is 1 exactly on the sampled tokens; ``logprobs`` is 0 elsewhere. ``call_ends`` holds, for each
    merged call, the position after its last sampled token; ``call_rewards`` the call's own reward or None.
    """

    rollout_id: str
    agent: str | None
    token_ids: Sequence[int]
    loss_mask: Sequence[int]
    logprobs: Sequence[float]
    temperature: float
    policy_version: int
    """Of the oldest call merged, so that staleness is never understated."""
    call_ends: Sequence[int]
    call_rewards: Sequence[float | None]
    call_numbers: Sequence[int] = ()
    """Where each merged call stands among all calls of the attempt, whose sequences may alternate; empty is one
    sequence behind the other.
    """
    truncated: bool = False
    """The last call stopped at its token limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSample:
    """One sequence with its credit; every per-token list has T entries, aligned with ``token_ids``.

    Entry t of ``old_logprobs``, ``advantages``, ``returns`` and ``old_values`` is about token t having been sampled;
    entries where ``loss_mask`` is 0 are ignored.
    """

    rollout_id: str
    token_ids: Sequence[int]
    loss_mask: Sequence[int]
    old_logprobs: Sequence[float] | None = None
    """None for losses that do not ask how likely the tokens were when they were sampled."""
    advantages: Sequence[float] | None = None
    temperature: float = 1.0
    policy_version: int = 0
    returns: Sequence[float] | None = None
    """Targets of the value model; None for algorithms without a critic."""
    old_values: Sequence[float] | None = None
    weight: float = 1.0
    """Multiplies the sequence's loss; the samples of a pair have the same."""
    pair_id: str | None = None
    """Of the two rollouts that ``PreferenceLoss`` compares; None outside of pairs."""
    preferred: bool = False
    """Whether it belongs to the better one of its pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoss:
    """The loss a learner is asked to minimise, and how to walk over the samples.

    loss = policy + kl_coef * KL(policy || reference) - entropy_coef * entropy; the critic has value_coef * value loss.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    """Bound on the ratio for negative advantages (arXiv:1912.09729, eq. 5); None is off."""
    kl_coef: float = 0.0
    kl_estimator: KlEstimator = "k3"
    entropy_coef: float = 0.0
    value_coef: float = 1.0
    value_clip: float | None = None
    aggregation: Aggregation = "token_mean"
    """``token_mean``: over all sampled tokens of a minibatch. ``rollout_mean``: mean over each rollout's tokens
    first, then over rollouts.
    """
    epochs: int = 1
    minibatch_rollouts: int | None = None
    """Rollouts per optimizer step; None is all of them in one step."""
    progress: float = 0.0
    """How much of the run lies behind this update, from 0 to 1; learning-rate schedules follow it."""
    max_kl: float | None = None
    """Stop the remaining minibatches once the mean k1 KL to the sampling policy exceeds this; None is never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodLoss:
    """Supervised learning: -log p of every token under ``loss_mask``. One update is one optimizer step."""

    aggregation: Aggregation = "token_mean"
    progress: float = 0.0
    """How much of the run lies behind this update, from 0 to 1; learning-rate schedules follow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceLoss:
    """Direct preference optimization: the better rollout of each pair against the worse, both against the frozen first
    policy. One update is one optimizer step on the mean over its pairs.

    Source: arXiv:2305.18290, eq. 7. Difference: the sides are rollouts, whose likelihood is that of all their sampled
    tokens, so what stands between the calls of an agent may differ, too.
    """

    beta: float = 0.1
    """How strongly the policy is held to the reference."""
    likelihood_coef: float = 0.0
    """Weight of -log p of the better rollout, the mean over its tokens (arXiv:2404.19733, eq. 1)."""
    progress: float = 0.0


Loss = PolicyLoss | LikelihoodLoss | PreferenceLoss
"""All that a learner may be asked for; ``check`` refuses what it cannot do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """What one call of a learner's update did."""

    optimizer_steps: int
    policy_version: int
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    """loss, policy_loss, value_loss, kl, kl_reference, entropy, clip_fraction, grad_norm, learning_rate, tokens,
    seconds, ...
    """
