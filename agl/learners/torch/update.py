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

from agl.errors import ConfigError
from agl.learners.steps import minibatches, token_weights
from agl.learners.torch.batches import MicroBatch, Row, row_from_trajectory
from agl.learners.torch.compute import Compute
from agl.learners.torch.losses import logprobs_of_targets
from agl.learners.torch.models import Models
from agl.learners.torch.objectives import objective
from agl.learners.torch.optimizers import Optimizers, StepOutcome
from agl.types.sample import LikelihoodLoss, Loss, PolicyLoss, PreferenceLoss, Trajectory


@dataclass(slots=True, kw_only=True)
class Tally:
    """What an update has done so far."""

    policy_steps: int = 0
    outcomes: list[StepOutcome] = field(default_factory=list[StepOutcome])
    minibatches: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    stopped_by_kl: bool = False


def check_loss(models: Models, rows: Sequence[Row], loss: Loss) -> None:
    """Check that models and samples have what the loss needs.

    Raises:
        ConfigError: a model is missing; the message names the setting.
        ValueError: samples lack something, or some have returns or old values and others do not.
    """
    if isinstance(loss, PolicyLoss):
        _check_policy_loss(models, rows, loss)
    elif isinstance(loss, PreferenceLoss):
        if models.reference_kind == "none":
            raise ConfigError(
                "preferences are learned against the frozen first policy: set learner.reference=true"
            )
        sides: dict[str | None, set[bool]] = {}
        for row in rows:
            sides.setdefault(row.pair_id, set()).add(row.preferred)
        lone = [pair_id for pair_id, found in sides.items() if pair_id is None or len(found) < 2]
        if lone:
            raise ValueError(f"{len(lone)} of {len(sides)} pairs lack a side, first {lone[0]}")


def _check_policy_loss(models: Models, rows: Sequence[Row], loss: PolicyLoss) -> None:
    if loss.kl_coef and models.reference_kind == "none":
        raise ConfigError(
            f"algorithm.kl_coef={loss.kl_coef} needs a frozen reference: set learner.reference=true"
        )
    lacking = sum(row.old_logprobs_N is None or row.advantages_N is None for row in rows)
    if lacking:
        raise ValueError(f"{lacking} of {len(rows)} samples have no old_logprobs or no advantages")
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
        return logprobs_of_targets(logits_NV, batch.targets_N, batch.temperature_N)

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
    loss: Loss,
    *,
    compute: Compute,
    rng: random.Random,
) -> Tally:
    """Take the optimizer steps that ``loss`` asks for, over rows of which there is at least one."""
    if models.reference_kind != "none" and not isinstance(loss, LikelihoodLoss):
        references = row_logprobs(models, rows, compute, reference=True)
        rows = [
            replace(row, reference_logprobs_N=logprobs.cpu())
            for row, logprobs in zip(rows, references, strict=True)
        ]
    tally = Tally()
    epochs, at_most = (loss.epochs, loss.minibatch_rollouts) if isinstance(loss, PolicyLoss) else (1, None)
    for _ in range(epochs):
        for minibatch in minibatches(rows, at_most, rng, unit=lambda row: row.unit):
            trains_policy = optimizers.trains_policy
            sums = _gather_gradients(models, minibatch, loss, compute, trains_policy=trains_policy)
            tally.minibatches.append(sums)
            max_kl = loss.max_kl if isinstance(loss, PolicyLoss) else None
            if max_kl is not None and sums["kl"] > max_kl * sums["tokens"]:
                optimizers.clear()
                tally.stopped_by_kl = True
                return tally
            outcome = optimizers.step(sums["loss"], progress=loss.progress)
            tally.outcomes.append(outcome)
            tally.policy_steps += trains_policy and outcome.taken
    return tally


def update_metrics(tally: Tally) -> dict[str, float]:
    """Return the report's numbers: losses as means over minibatches, the rest as means over tokens or pairs."""
    batches = tally.minibatches

    def total(name: str) -> float:
        return math.fsum(sums[name] for sums in batches)

    tokens = total("tokens")
    known = batches[0]
    metrics = {name: total(name) / len(batches) for name in _PER_MINIBATCH if name in known}
    metrics |= {name: total(name) / tokens for name in _PER_TOKEN if name in known}
    metrics |= {name: total(name) / total("pairs") for name in _PER_PAIR if name in known}
    if "value_loss" in known:
        variance = total("returns_squared") / tokens - (total("returns") / tokens) ** 2
        if variance > 0:
            metrics["explained_variance"] = 1.0 - total("errors_squared") / tokens / variance
    steps = [outcome for outcome in tally.outcomes if outcome.taken]
    if steps:
        metrics["grad_norm"] = math.fsum(step.grad_norm for step in steps) / len(steps)
        metrics["learning_rate"] = steps[-1].learning_rate
    if "ratio_max" in known:
        metrics["ratio_max"] = max(sums["ratio_max"] for sums in batches)
        metrics["logprob_gap_first"] = known["logprob_gap"]
        metrics["stopped_by_kl"] = float(tally.stopped_by_kl)
    return metrics | {"skipped_steps": float(len(tally.outcomes) - len(steps))}


_PER_MINIBATCH = ("loss", "policy_loss", "value_loss")
_PER_TOKEN = ("kl", "entropy", "clip_fraction", "kl_reference", "negative_logprob")
_PER_PAIR = ("pairs_right", "margin", "reward_preferred", "reward_rejected", "negative_logprob_preferred")


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
    models: Models, rows: Sequence[Row], loss: Loss, compute: Compute, *, trains_policy: bool
) -> dict[str, float]:
    """Add the minibatch's gradient to the parameters and return its sums."""
    weights = _weights(rows, loss)
    names: list[str] = []
    sums: list[Tensor] = []
    for batch in compute.micro_batches(rows, weights):
        compute.check_stopped()
        total, numbers = objective(models, batch, loss, compute, trains_policy=trains_policy)
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


def _weights(rows: Sequence[Row], loss: Loss) -> list[float]:
    """Return the weight of each row's tokens, or of its pair, in the minibatch's loss."""
    if isinstance(loss, PreferenceLoss):
        pairs = len({row.pair_id for row in rows})
        return [row.weight / pairs for row in rows]
    return token_weights(
        [row.rollout_id for row in rows],
        [row.num_sampled for row in rows],
        [row.weight for row in rows],
        loss.aggregation,
    )


_MAXIMA = ("ratio_max", "logprob_gap")


def per_token(
    trajectories: Sequence[Trajectory], vocab_size: int, compute: Callable[[list[Row]], list[Tensor]]
) -> list[list[float]]:
    """Return what ``compute`` gives for the sampled tokens, spread over each trajectory; 0.0 between."""
    rows = [row_from_trajectory(trajectory, vocab_size=vocab_size) for trajectory in trajectories]
    present = [row for row in rows if row is not None]
    numbers = iter(compute(present) if present else [])
    spread: list[list[float]] = []
    for trajectory, row in zip(trajectories, rows, strict=True):
        line_T = torch.zeros(len(trajectory.token_ids))
        if row is not None:
            line_T[row.positions_N] = next(numbers)
        spread.append(floats(line_T))
    return spread
