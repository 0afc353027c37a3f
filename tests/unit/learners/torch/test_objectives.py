"""Supervised likelihood and preferences against plain loops, however sequences are cut or packed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from agl.learners.torch.batches import Row, row_from_sample
from agl.learners.torch.compute import Compute
from agl.learners.torch.models import Models, load_models
from agl.learners.torch.update import _gather_gradients, row_logprobs
from agl.types.policy import Policy
from agl.types.sample import LikelihoodLoss, Loss, PreferenceLoss, TrainingSample, Trajectory

CPU = torch.device("cpu")
Make = Callable[..., Any]
CUTS = pytest.mark.parametrize("micro_batch_tokens", [1, 30, 10_000])
PACKED = pytest.mark.parametrize("packed", [False, True], ids=["apart", "packed"])


def load(policy: Policy, *, reference: bool = False) -> Models:
    return load_models(
        policy, critic="none", reference=reference, gradient_checkpointing=False, device=CPU, seed=0
    )


def compute(micro_batch_tokens: int, *, packed: bool) -> Compute:
    return Compute(
        device=CPU,
        micro_batch_tokens=micro_batch_tokens,
        bfloat16=False,
        stopped=lambda: False,
        packed=packed,
    )


def rows_of(samples: list[TrainingSample]) -> list[Row]:
    rows = [row_from_sample(sample, vocab_size=20) for sample in samples]
    return [row for row in rows if row is not None]


@pytest.fixture
def samples(make_trajectories: Make) -> list[TrainingSample]:
    """Nine sequences of five rollouts, without logprobs or advantages."""
    trajectories: list[Trajectory] = make_trajectories()
    return [
        TrainingSample(
            rollout_id=one.rollout_id,
            token_ids=one.token_ids,
            loss_mask=one.loss_mask,
            weight=1.0 + index % 2,
        )
        for index, one in enumerate(trajectories)
    ]


def masked_logprobs(model: Any, sample: TrainingSample) -> torch.Tensor:
    """Of each masked token, by one full forward, in float64 behind the model."""
    logits_TV = model(torch.tensor([list(sample.token_ids)])).logits[0].double()
    logprobs_TV = logits_TV.log_softmax(-1)
    return torch.stack(
        [logprobs_TV[t - 1, sample.token_ids[t]] for t, bit in enumerate(sample.loss_mask) if bit]
    )


def assert_same_gradients(ours: Models, theirs: Models) -> None:
    pairs = zip(ours.trainable_policy().items(), theirs.trainable_policy().values(), strict=True)
    for (name, parameter), other in pairs:
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-4, atol=1e-6, msg=name)


def gathered(models: Models, rows: list[Row], loss: Loss, how: Compute) -> dict[str, float]:
    return _gather_gradients(models, rows, loss, how, trains_policy=True)


@CUTS
@PACKED
@pytest.mark.parametrize("aggregation", ["token_mean", "rollout_mean"])
def test_likelihood_is_the_mean_over_the_masked_tokens_of_a_plain_loop(
    policy: Policy, samples: list[TrainingSample], aggregation: Any, micro_batch_tokens: int, packed: bool
) -> None:
    ours, theirs = load(policy), load(policy)
    counts: dict[str, int] = {}
    for sample in samples:
        counts[sample.rollout_id] = counts.get(sample.rollout_id, 0) + sum(sample.loss_mask)
    expected = torch.zeros((), dtype=torch.float64)
    for sample in samples:
        share = (
            1 / sum(counts.values())
            if aggregation == "token_mean"
            else 1 / counts[sample.rollout_id] / len(counts)
        )
        expected = expected - sample.weight * share * masked_logprobs(theirs.policy, sample).sum()
    expected.backward()
    sums = gathered(
        ours,
        rows_of(samples),
        LikelihoodLoss(aggregation=aggregation),
        compute(micro_batch_tokens, packed=packed),
    )
    assert sums["loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert sums["tokens"] == sum(counts.values())
    assert_same_gradients(ours, theirs)


def paired(samples: list[TrainingSample]) -> list[TrainingSample]:
    """Three pairs, of which one has two sequences on its better side."""
    sides = [("p", True), ("p", True), ("p", False), ("q", True), ("q", False), ("r", False), ("r", True)]
    return [
        replace(sample, pair_id=pair_id, preferred=preferred, weight=1.0)
        for sample, (pair_id, preferred) in zip(samples, sides, strict=False)
    ]


@CUTS
@PACKED
@pytest.mark.parametrize("likelihood_coef", [0.0, 0.7])
def test_preference_is_eq_7_of_the_paper_in_a_plain_loop(
    policy: Policy,
    samples: list[TrainingSample],
    micro_batch_tokens: int,
    packed: bool,
    likelihood_coef: float,
) -> None:
    ours, theirs = load(policy, reference=True), load(policy)
    rng, chosen, beta = random.Random(1), paired(samples), 0.3
    rows = rows_of(chosen)
    references = row_logprobs(ours, rows, compute(10_000, packed=packed), reference=True)
    # Away from the policy by a random amount, so that ratios and their signs differ.
    moved = [line + rng.gauss(0, 0.5) for line in references]
    rows = [replace(row, reference_logprobs_N=line) for row, line in zip(rows, moved, strict=True)]
    expected = torch.zeros((), dtype=torch.float64)
    right = 0
    for pair_id in ("p", "q", "r"):
        difference = torch.zeros((), dtype=torch.float64)
        for sample, reference in zip(chosen, moved, strict=True):
            if sample.pair_id == pair_id:
                ratio = masked_logprobs(theirs.policy, sample).sum() - reference.double().sum()
                difference = difference + (ratio if sample.preferred else -ratio)
        right += difference.item() > 0
        expected = expected - torch.nn.functional.logsigmoid(beta * difference) / 3
        better = [
            masked_logprobs(theirs.policy, one) for one in chosen if one.pair_id == pair_id and one.preferred
        ]
        expected = expected - likelihood_coef * torch.cat(better).mean() / 3
    expected.backward()
    sums = gathered(
        ours,
        rows,
        PreferenceLoss(beta=beta, likelihood_coef=likelihood_coef),
        compute(micro_batch_tokens, packed=packed),
    )
    assert sums["loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert (sums["pairs"], sums["pairs_right"]) == (3, right)
    assert 0 < right < 3
    assert sums["margin"] == pytest.approx(sums["reward_preferred"] - sums["reward_rejected"], rel=1e-5)
    assert_same_gradients(ours, theirs)
