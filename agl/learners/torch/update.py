"""One update: walk over the samples in minibatches, gather each one's gradient in micro-batches, step.

Shape suffixes: N sampled tokens of a micro-batch; B sequences, T positions, V vocabulary.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor

from agl.errors import ConfigError, RunStoppedError
from agl.learners.torch.batches import MicroBatch, Row, micro_batches, minibatches
from agl.learners.torch.losses import (
    clipped_surrogate,
    kl_divergence,
    logprobs_and_entropy,
    squared_value_error,
    token_weights,
)
from agl.learners.torch.models import Models, hidden_and_logits
from agl.learners.torch.optimizers import Optimizers, StepOutcome
from agl.types.sample import PolicyLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """How forwards run.

    Args:
        device: where models and batches are.
        micro_batch_tokens: most tokens, padding included, of one forward.
        bfloat16: matrix products in bfloat16 (autocast); losses stay in float32.
        stopped: whether to give up at the next micro-batch, because the learner is being closed.
    """

    device: torch.device
    micro_batch_tokens: int
    bfloat16: bool
    stopped: Callable[[], bool]

    def forward(self, model: Any, batch: MicroBatch, *, logits: bool = True) -> tuple[Tensor, Tensor]:
        """Return ``hidden_and_logits`` of the batch."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bfloat16):
            return hidden_and_logits(model, batch.ids_BT, batch.rows_N, logits=logits)

    def micro_batches(self, rows: Sequence[Row], weights: Sequence[float]) -> list[MicroBatch]:
        """Return the rows as micro-batches on the device."""
        return micro_batches(rows, weights, max_tokens=self.micro_batch_tokens, device=self.device)

    def check_stopped(self) -> None:
        """Raise RunStoppedError when the learner is being closed."""
        if self.stopped():
            raise RunStoppedError("the learner was closed in the middle of its work")


@dataclass(slots=True, kw_only=True)
class Tally:
    """What an update has done so far."""

    policy_steps: int = 0
    outcomes: list[StepOutcome] = field(default_factory=list[StepOutcome])
    minibatches: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    stopped_by_kl: bool = False


def check_loss(models: Models, rows: Sequence[Row], loss: PolicyLoss) -> None:
    """Check that models and samples have what the loss needs.

    Raises:
        ConfigError: a model is missing; the message names the setting.
        ValueError: some samples have returns or old values and others do not.
    """
    if loss.kl_coef and models.reference_kind == "none":
        raise ConfigError(
            f"algorithm.kl_coef={loss.kl_coef} needs a frozen reference: set learner.reference=true"
        )
    with_returns = sum(row.returns_N is not None for row in rows)
    if with_returns and models.critic is None:
        raise ConfigError(
            "the algorithm trains a value model, but learner.critic=none: set learner.critic=head or model"
        )
    if with_returns not in (0, len(rows)):
        raise ValueError(f"{with_returns} of {len(rows)} samples have returns; all or none must")
    if with_returns and loss.value_clip is not None and any(row.old_values_N is None for row in rows):
        raise ValueError("value_clip needs the old_values of every sample")


def row_logprobs(models: Models, rows: Sequence[Row], compute: Compute, *, reference: bool) -> list[Tensor]:
    """Return, for each row, the logprobs of its sampled tokens by the policy or the frozen reference."""

    def run(batch: MicroBatch, model: Any) -> Tensor:
        _hidden, logits_NV = compute.forward(model, batch)
        return logprobs_and_entropy(logits_NV, batch.targets_N, batch.temperature_N, entropy_gradient=False)[
            0
        ]

    with models.without_dropout():
        if not reference:
            return _by_row(rows, compute, lambda batch: run(batch, models.policy))
        with models.as_reference() as model:
            return _by_row(rows, compute, lambda batch: run(batch, model))


def row_values(models: Models, rows: Sequence[Row], compute: Compute) -> list[Tensor]:
    """Return, for each row, the critic's value of the state in which each of its tokens was sampled."""
    critic = models.critic
    assert critic is not None
    backbone = models.policy if critic.backbone is None else critic.backbone

    def run(batch: MicroBatch) -> Tensor:
        return critic(compute.forward(backbone, batch, logits=False)[0])

    with models.without_dropout():
        return _by_row(rows, compute, run)


def take_steps(
    models: Models,
    optimizers: Optimizers,
    rows: Sequence[Row],
    loss: PolicyLoss,
    *,
    compute: Compute,
    rng: random.Random,
) -> Tally:
    """Take the optimizer steps that ``loss`` asks for, over rows of which there is at least one."""
    if models.reference_kind != "none":
        references = row_logprobs(models, rows, compute, reference=True)
        rows = [
            replace(row, reference_logprobs_N=logprobs.cpu())
            for row, logprobs in zip(rows, references, strict=True)
        ]
    tally = Tally()
    for _ in range(loss.epochs):
        for minibatch in minibatches(rows, loss.minibatch_rollouts, rng):
            trains_policy = optimizers.trains_policy
            sums = _gather_gradients(models, minibatch, loss, compute, trains_policy=trains_policy)
            tally.minibatches.append(sums)
            if loss.max_kl is not None and sums["kl"] > loss.max_kl * sums["tokens"]:
                optimizers.clear()
                tally.stopped_by_kl = True
                return tally
            outcome = optimizers.step(sums["loss"], progress=loss.progress)
            tally.outcomes.append(outcome)
            tally.policy_steps += trains_policy and outcome.taken
    return tally


def update_metrics(tally: Tally) -> dict[str, float]:
    """Return the report's numbers: losses as means over minibatches, the rest as means over tokens."""
    batches = tally.minibatches

    def total(name: str) -> float:
        return math.fsum(sums[name] for sums in batches)

    tokens = total("tokens")
    metrics = {name: total(name) / len(batches) for name in ("loss", "policy_loss")}
    metrics |= {name: total(name) / tokens for name in ("kl", "entropy", "clip_fraction")}
    if "kl_reference" in batches[0]:
        metrics["kl_reference"] = total("kl_reference") / tokens
    if "value_loss" in batches[0]:
        metrics["value_loss"] = total("value_loss") / len(batches)
        variance = total("returns_squared") / tokens - (total("returns") / tokens) ** 2
        if variance > 0:
            metrics["explained_variance"] = 1.0 - total("errors_squared") / tokens / variance
    steps = [outcome for outcome in tally.outcomes if outcome.taken]
    if steps:
        metrics["grad_norm"] = math.fsum(step.grad_norm for step in steps) / len(steps)
        metrics["learning_rate"] = steps[-1].learning_rate
    return metrics | {
        "ratio_max": max(sums["ratio_max"] for sums in batches),
        "logprob_gap_first": batches[0]["logprob_gap"],
        "skipped_steps": float(len(tally.outcomes) - len(steps)),
        "stopped_by_kl": float(tally.stopped_by_kl),
    }


def floats(numbers_N: Tensor) -> list[float]:
    """Return a vector's numbers."""
    return cast("list[float]", cast("Any", numbers_N).tolist())


def _by_row(rows: Sequence[Row], compute: Compute, run: Callable[[MicroBatch], Tensor]) -> list[Tensor]:
    """Return what ``run`` gives for the sampled tokens of each row, on the CPU, without gradients."""
    results: dict[int, Tensor] = {}
    with torch.no_grad():
        for batch in compute.micro_batches(rows, [1.0] * len(rows)):
            compute.check_stopped()
            ends = accumulate(rows[index].num_sampled for index in batch.indices)
            parts = run(batch).cpu().tensor_split(list(ends)[:-1])
            results |= dict(zip(batch.indices, parts, strict=True))
    return [results[index] for index in range(len(rows))]


def _gather_gradients(
    models: Models, rows: Sequence[Row], loss: PolicyLoss, compute: Compute, *, trains_policy: bool
) -> dict[str, float]:
    """Add the minibatch's gradient to the parameters and return its sums."""
    weights = token_weights(
        [row.rollout_id for row in rows],
        [row.num_sampled for row in rows],
        [row.weight for row in rows],
        loss.aggregation,
    )
    names: list[str] = []
    sums: list[Tensor] = []
    for batch in compute.micro_batches(rows, weights):
        compute.check_stopped()
        total, numbers = _micro_batch_loss(models, batch, loss, compute, trains_policy=trains_policy)
        if total.requires_grad:
            cast("Any", total).backward()
        names = list(numbers)
        sums.append(torch.stack([number.detach() for number in numbers.values()]))
    # One transfer a minibatch: each number asked of a GPU by itself would wait for all that it has to do.
    table = torch.stack(sums).double()
    joined = [
        table[:, column].max() if name in _MAXIMA else table[:, column].sum()
        for column, name in enumerate(names)
    ]
    return dict(zip(names, floats(torch.stack(joined)), strict=True))


_MAXIMA = ("ratio_max", "logprob_gap")


def _micro_batch_loss(
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
