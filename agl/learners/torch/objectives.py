"""What each kind of loss asks of a micro-batch: its share of the minibatch's loss, and what the report is made of.

Shape suffixes: N sampled tokens of a micro-batch; P its pairs; H hidden size, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from agl.learners.torch.batches import MicroBatch
from agl.learners.torch.compute import Compute
from agl.learners.torch.losses import (
    clipped_surrogate,
    kl_divergence,
    logprobs_and_entropy,
    logprobs_of_targets,
    preference_loss,
    squared_value_error,
)
from agl.learners.torch.models import Models
from agl.types.sample import LikelihoodLoss, Loss, PolicyLoss, PreferenceLoss


def objective(
    models: Models, batch: MicroBatch, loss: Loss, compute: Compute, *, trains_policy: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the micro-batch's share of the minibatch's loss, and the numbers that are summed over micro-batches."""
    if isinstance(loss, PolicyLoss):
        return policy_objective(models, batch, loss, compute, trains_policy=trains_policy)
    with torch.set_grad_enabled(trains_policy):
        logits_NV = compute.forward(models.policy, batch)[1]
        logprobs_N = logprobs_of_targets(logits_NV, batch.targets_N, batch.temperature_N)
        if isinstance(loss, LikelihoodLoss):
            return _likelihood(batch, logprobs_N)
        return _preference(batch, logprobs_N, loss)


def _likelihood(batch: MicroBatch, logprobs_N: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    total = -(logprobs_N * batch.weights_N).sum()
    return total, {
        "loss": total,
        "negative_logprob": -logprobs_N.detach().sum(),
        "tokens": torch.ones_like(logprobs_N).sum(),
    }


def _preference(
    batch: MicroBatch, logprobs_N: Tensor, loss: PreferenceLoss
) -> tuple[Tensor, dict[str, Tensor]]:
    assert batch.reference_logprobs_N is not None
    assert batch.pairs is not None
    pairs = batch.pairs
    ratio_N = logprobs_N - batch.reference_logprobs_N
    none_P = ratio_N.new_zeros(pairs.count)
    better_P = none_P.index_add(0, pairs.pairs_N, ratio_N * pairs.preferred_N)
    worse_P = none_P.index_add(0, pairs.pairs_N, ratio_N * (1.0 - pairs.preferred_N))
    weights_P = none_P.scatter(0, pairs.pairs_N, batch.weights_N)
    tokens_P = none_P.index_add(0, pairs.pairs_N, pairs.preferred_N)
    likelihood_P = none_P.index_add(0, pairs.pairs_N, logprobs_N * pairs.preferred_N) / tokens_P
    loss_P = preference_loss(better_P, worse_P, beta=loss.beta) - loss.likelihood_coef * likelihood_P
    total = (loss_P * weights_P).sum()
    margin_P = (loss.beta * (better_P - worse_P)).detach()
    return total, {
        "loss": total,
        "pairs": torch.ones_like(margin_P).sum(),
        "pairs_right": (margin_P > 0).float().sum(),
        "margin": margin_P.sum(),
        "reward_preferred": loss.beta * better_P.detach().sum(),
        "reward_rejected": loss.beta * worse_P.detach().sum(),
        "negative_logprob_preferred": -likelihood_P.detach().sum(),
        "tokens": torch.ones_like(logprobs_N).sum(),
    }


def policy_objective(
    models: Models, batch: MicroBatch, loss: PolicyLoss, compute: Compute, *, trains_policy: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the micro-batch's share of the minibatch's loss, and what the report is made of."""
    assert batch.old_logprobs_N is not None
    assert batch.advantages_N is not None
    with torch.set_grad_enabled(trains_policy):
        hidden_NH, logits_NV = compute.forward(models.policy, batch)
        logprobs_N, entropy_N = logprobs_and_entropy(
            logits_NV, batch.targets_N, batch.temperature_N, entropy_gradient=loss.entropy_coef != 0
        )
        loss_N, ratio_N, clipped_N = clipped_surrogate(
            logprobs_N,
            batch.old_logprobs_N,
            batch.advantages_N,
            clip_low=loss.clip_low,
            clip_high=loss.clip_high,
            dual_clip=loss.dual_clip,
        )
        policy_loss = (loss_N * batch.weights_N).sum()
        total = policy_loss
        gap_N = (batch.old_logprobs_N - logprobs_N).detach()
        numbers = {
            "policy_loss": policy_loss,
            "tokens": torch.ones_like(gap_N).sum(),
            "kl": gap_N.sum(),
            "entropy": entropy_N.sum(),
            "clip_fraction": clipped_N.float().sum(),
            "ratio_max": ratio_N.max(),
            "logprob_gap": gap_N.abs().max(),
        }
        if batch.reference_logprobs_N is not None:
            kl_N = kl_divergence(logprobs_N, batch.reference_logprobs_N, loss.kl_estimator)
            total = total + loss.kl_coef * (kl_N * batch.weights_N).sum()
            numbers["kl_reference"] = kl_N.sum()
        if loss.entropy_coef:
            total = total - loss.entropy_coef * (entropy_N * batch.weights_N).sum()
    if batch.returns_N is not None:
        value_loss, value_numbers = _value_loss(models, batch, hidden_NH, loss, compute)
        total = total + loss.value_coef * value_loss
        numbers |= value_numbers
    return total, {"loss": total} | numbers


def _value_loss(
    models: Models, batch: MicroBatch, hidden_NH: Tensor, loss: PolicyLoss, compute: Compute
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the critic's loss, which moves nothing of the policy: a head on its states sees them detached."""
    assert models.critic is not None
    assert batch.returns_N is not None
    if models.critic.backbone is not None:
        hidden_NH, _ = compute.forward(models.critic.backbone, batch, logits=False)
    else:
        hidden_NH = hidden_NH.detach()
    values_N = models.critic(hidden_NH)
    error_N = squared_value_error(values_N, batch.returns_N, batch.old_values_N, loss.value_clip)
    value_loss = (error_N * batch.weights_N).sum()
    return value_loss, {
        "value_loss": value_loss,
        "returns": batch.returns_N.sum(),
        "returns_squared": batch.returns_N.square().sum(),
        "errors_squared": (values_N.detach() - batch.returns_N).square().sum(),
    }
