"""The losses of policy and critic: pure functions from per-token tensors to per-token tensors, in float32.

Shape suffixes: N is the sampled tokens of a (micro-)batch, of all its sequences one after the other; V the
vocabulary. A loss becomes one number as ``(loss_N * weights_N).sum()``; ``token_weights`` normalises over a
whole minibatch, so how it is cut into micro-batches changes neither loss nor gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid

from agl.types.sample import KlEstimator

MAX_LOG_RATIO = 20.0
"""exp(20) is far outside every clip range and far inside float32."""


def clipped_surrogate(
    logprobs_N: Tensor,
    old_logprobs_N: Tensor,
    advantages_N: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (loss, ratio, whether the clip took the token's gradient away) of each token.

    loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), eq. 7 of arXiv:1707.06347 with the two borders
    apart (arXiv:2503.14476, eq. 10). ``dual_clip`` c bounds the loss of a negative advantage at -c A
    (arXiv:1912.09729, eq. 5).
    """
    ratio_N = (logprobs_N - old_logprobs_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    free_N = -ratio_N * advantages_N
    bounded_N = -ratio_N.clamp(1.0 - clip_low, 1.0 + clip_high) * advantages_N
    loss_N = torch.maximum(free_N, bounded_N)
    clipped_N = bounded_N > free_N
    if dual_clip is not None:
        bound_N = -dual_clip * advantages_N
        beyond_N = (advantages_N < 0) & (loss_N > bound_N)
        loss_N = torch.where(beyond_N, bound_N, loss_N)
        clipped_N = clipped_N | beyond_N
    return loss_N, ratio_N.detach(), clipped_N


def kl_divergence(logprobs_N: Tensor, reference_logprobs_N: Tensor, estimator: KlEstimator) -> Tensor:
    """Return each token's estimate of KL(policy || reference), sampled from the policy.

    Schulman, "Approximating KL Divergence" (http://joschu.net/blog/kl-approx.html), with
    log r = reference - policy: k1 = -log r, k2 = (log r)^2 / 2, k3 = r - 1 - log r. As a loss, the expected
    gradient of k1 is 0 and that of k2 is the KL's.
    """
    log_ratio_N = reference_logprobs_N - logprobs_N
    if estimator == "k1":
        return -log_ratio_N
    if estimator == "k2":
        return 0.5 * log_ratio_N.square()
    log_ratio_N = log_ratio_N.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return log_ratio_N.exp() - 1.0 - log_ratio_N


def squared_value_error(
    values_N: Tensor, returns_N: Tensor, old_values_N: Tensor | None = None, clip: float | None = None
) -> Tensor:
    """Return half the squared error of each value.

    With ``clip``, the larger of it and that of the value moved at most ``clip`` away from ``old_values_N``,
    as in the PPO2 code of OpenAI baselines (the paper does not have it).
    """
    error_N = (values_N - returns_N).square()
    if clip is not None:
        assert old_values_N is not None
        moved_N = old_values_N + (values_N - old_values_N).clamp(-clip, clip)
        error_N = torch.maximum(error_N, (moved_N - returns_N).square())
    return 0.5 * error_N


def logprobs_and_entropy(
    logits_NV: Tensor, targets_N: Tensor, temperature_N: Tensor | None, *, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Return each target's logprob and each distribution's entropy in nats, of softmax(logits / temperature).

    No temperature is 1.
    """
    logits_NV = logits_NV.float()
    if temperature_N is not None:
        logits_NV = logits_NV / temperature_N[:, None]
    logprobs_NV = logits_NV.log_softmax(dim=-1)
    logprobs_N = logprobs_NV.gather(1, targets_N[:, None])[:, 0]
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        # A token that is ruled out has logprob -inf and probability 0; its share of the entropy is 0.
        entropy_N = -(logprobs_NV.exp() * logprobs_NV.clamp_min(torch.finfo(torch.float32).min)).sum(dim=-1)
    return logprobs_N, entropy_N


def logprobs_of_targets(logits_NV: Tensor, targets_N: Tensor, temperature_N: Tensor | None) -> Tensor:
    """Return each target's logprob under softmax(logits / temperature), without what the entropy would cost."""
    logits_NV = logits_NV.float()
    if temperature_N is not None:
        logits_NV = logits_NV / temperature_N[:, None]
    return -cross_entropy(logits_NV, targets_N, reduction="none")


def preference_loss(better_P: Tensor, worse_P: Tensor, *, beta: float) -> Tensor:
    """Return the loss of each pair from its sides' log(policy / reference), summed over their tokens.

    -log sigmoid(beta * better - beta * worse), arXiv:2305.18290, eq. 7.
    """
    return -logsigmoid(beta * (better_P - worse_P))
