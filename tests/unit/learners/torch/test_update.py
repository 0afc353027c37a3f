import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from agl.errors import ConfigError, RunStoppedError
from agl.learners.torch.batches import Row, row_from_sample, row_from_trajectory
from agl.learners.torch.models import Models, load_models
from agl.learners.torch.optimizers import Optimizers, OptimizerSettings
from agl.learners.torch.update import (
    Compute,
    _gather_gradients,
    check_loss,
    row_logprobs,
    row_values,
    take_steps,
    update_metrics,
)
from agl.types.policy import Lora, Policy
from agl.types.sample import PolicyLoss, PreferenceLoss, TrainingSample, Trajectory

CPU = torch.device("cpu")
Make = Callable[..., Any]


def compute(micro_batch_tokens: int = 10_000, *, stopped: bool = False) -> Compute:
    return Compute(device=CPU, micro_batch_tokens=micro_batch_tokens, bfloat16=False, stopped=lambda: stopped)


def load(policy: Policy, **settings: Any) -> Models:
    plain = {"critic": "none", "reference": False, "gradient_checkpointing": False, "device": CPU, "seed": 0}
    models = load_models(policy, **(plain | settings))
    if models.critic is not None:  # away from 0, so that values and their gradients say something
        with torch.no_grad():
            models.critic.head.weight += 0.1
    return models


def optimizers_of(models: Models, learning_rate: float = 1e-3) -> Optimizers:
    settings = OptimizerSettings(
        learning_rate=learning_rate,
        warmup_steps=0,
        schedule="constant",
        weight_decay=0.0,
        beta1=0.9,
        beta2=0.95,
        max_grad_norm=1.0,
        critic_learning_rate=1e-2,
        critic_warmup_steps=0,
    )
    head = [] if models.critic is None else models.critic.head.parameters()
    return Optimizers(models.trainable_policy().values(), head, [], settings)


def rows_of(sequences: list[Any]) -> list[Row]:
    make = row_from_sample if isinstance(sequences[0], TrainingSample) else row_from_trajectory
    rows = [make(sequence, vocab_size=20) for sequence in sequences]
    return [row for row in rows if row is not None]


@pytest.fixture
def trajectories(make_trajectories: Make) -> list[Trajectory]:
    return make_trajectories(temperature=0.7)


@pytest.fixture
def samples(
    trajectories: list[Trajectory], make_samples: Make, full_logprobs: Make, plain_model: Any
) -> list[TrainingSample]:
    """Off-policy by a random amount, so that some ratios are clipped; with returns; weights differ."""
    rng = random.Random(3)
    old = [
        [logprob + rng.gauss(0, 0.3) for logprob in full_logprobs(plain_model, t.token_ids, 0.7)]
        for t in trajectories
    ]
    made = make_samples(old, trajectories, with_returns=True)
    return [replace(sample, weight=1.0 + index % 3) for index, sample in enumerate(made)]


def reference_loss(
    model: Any, models: Models, samples: list[TrainingSample], loss: PolicyLoss
) -> torch.Tensor:
    """The minibatch's loss by one full forward a sequence and a loop over its tokens, in float64 behind the model."""
    assert models.critic is not None
    policy_total, value_total = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    tokens_of: dict[str, int] = {}
    for sample in samples:
        tokens_of[sample.rollout_id] = tokens_of.get(sample.rollout_id, 0) + sum(sample.loss_mask)
    for sample in samples:
        output = model(torch.tensor([list(sample.token_ids)]), output_hidden_states=True)
        logprobs_TV = (output.logits[0].double() / sample.temperature).log_softmax(-1)
        values_T = models.critic(output.hidden_states[-1][0].detach()).double()
        for t, sampled in enumerate(sample.loss_mask):
            if not sampled:
                continue
            if loss.aggregation == "token_mean":
                weight = sample.weight / sum(tokens_of.values())
            else:
                weight = sample.weight / tokens_of[sample.rollout_id] / len(tokens_of)
            logprob = logprobs_TV[t - 1, sample.token_ids[t]]
            ratio, advantage = (logprob - sample.old_logprobs[t]).exp(), sample.advantages[t]
            policy = -torch.min(
                ratio * advantage, ratio.clamp(1 - loss.clip_low, 1 + loss.clip_high) * advantage
            )
            entropy = -(logprobs_TV[t - 1].exp() * logprobs_TV[t - 1]).sum()
            # The reference is the policy itself: k3 and its gradient are 0 here, k1's gradient is not.
            kl = logprob - logprob.detach() if loss.kl_estimator == "k1" else 0.0
            policy_total = policy_total + weight * (policy + loss.kl_coef * kl - loss.entropy_coef * entropy)
            assert sample.returns is not None
            value_total = value_total + weight * 0.5 * (values_T[t - 1] - sample.returns[t]) ** 2
    return policy_total + loss.value_coef * value_total


@pytest.mark.parametrize("aggregation", ["token_mean", "rollout_mean"])
@pytest.mark.parametrize("micro_batch_tokens", [1, 20, 10_000])
def test_the_gradient_is_that_of_a_plain_loop_however_micro_batches_are_cut(
    policy: Policy, samples: list[TrainingSample], aggregation: str, micro_batch_tokens: int
) -> None:
    loss = PolicyLoss(
        kl_coef=0.1,
        kl_estimator="k1",
        entropy_coef=0.05,
        value_coef=0.7,
        aggregation=aggregation,  # type: ignore[arg-type]
    )
    ours, theirs = (load(policy, critic="head", reference=True) for _ in range(2))
    expected = reference_loss(theirs.policy, theirs, samples, loss)
    expected.backward()
    rows = rows_of(samples)
    references = row_logprobs(ours, rows, compute(), reference=True)
    rows = [replace(row, reference_logprobs_N=line) for row, line in zip(rows, references, strict=True)]
    sums = _gather_gradients(ours, rows, loss, compute(micro_batch_tokens), trains_policy=True)
    assert sums["loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert sums["tokens"] == sum(sum(sample.loss_mask) for sample in samples)
    assert sums["clip_fraction"] > 3  # the case is not an easy one
    pairs = zip(
        [*ours.trainable_policy().items(), *ours.trainable_critic().items()],
        [*theirs.trainable_policy().values(), *theirs.trainable_critic().values()],
        strict=True,
    )
    for (name, parameter), other in pairs:
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_what_is_outside_the_mask_changes_nothing(policy: Policy, samples: list[TrainingSample]) -> None:
    def gradient(changed: list[TrainingSample]) -> list[torch.Tensor]:
        models = load(policy, critic="head")
        _gather_gradients(models, rows_of(changed), PolicyLoss(), compute(), trains_policy=True)
        parameters = [*models.trainable_policy().values(), *models.trainable_critic().values()]
        return [parameter.grad for parameter in parameters if parameter.grad is not None]

    def perturbed(sample: TrainingSample) -> TrainingSample:
        def noisy(values: Any) -> list[float]:
            return [v if m else v + 1e6 for v, m in zip(values, sample.loss_mask, strict=True)]

        last = max(index for index, mask in enumerate(sample.loss_mask) if mask)
        return replace(
            sample,
            token_ids=[*sample.token_ids[: last + 1], *([19] * 5)],
            loss_mask=[*sample.loss_mask[: last + 1], *([0] * 5)],
            old_logprobs=[*noisy(sample.old_logprobs)[: last + 1], *([1e6] * 5)],
            advantages=[*noisy(sample.advantages)[: last + 1], *([1e6] * 5)],
            returns=[*noisy(sample.returns)[: last + 1], *([1e6] * 5)],
            old_values=[*noisy(sample.old_values)[: last + 1], *([1e6] * 5)],
        )

    before, after = gradient(samples), gradient([perturbed(sample) for sample in samples])
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    moved = [replace(s, advantages=[-a for a in s.advantages]) for s in samples]
    assert not torch.equal(gradient(moved)[0], before[0])


def test_logprobs_equal_a_full_forward_of_each_sequence(
    policy: Policy, trajectories: list[Trajectory], full_logprobs: Make, plain_model: Any
) -> None:
    lines = row_logprobs(load(policy), rows_of(trajectories), compute(20), reference=False)
    for trajectory, line in zip(trajectories, lines, strict=True):
        full = full_logprobs(plain_model, trajectory.token_ids, 0.7)
        sampled = [logprob for logprob, mask in zip(full, trajectory.loss_mask, strict=True) if mask]
        np.testing.assert_allclose(line.numpy(), sampled, atol=1e-5)


@pytest.mark.parametrize("kind", ["head", "model"])
def test_values_are_the_heads_of_the_state_before_each_token(
    policy: Policy, trajectories: list[Trajectory], plain_model: Any, kind: str
) -> None:
    models = load(policy, critic=kind)
    assert models.critic is not None
    lines = row_values(models, rows_of(trajectories), compute(20))
    for trajectory, line in zip(trajectories, lines, strict=True):
        output = plain_model(torch.tensor([list(trajectory.token_ids)]), output_hidden_states=True)
        values = models.critic(output.hidden_states[-1][0])
        at = [index - 1 for index, mask in enumerate(trajectory.loss_mask) if mask]
        torch.testing.assert_close(line, values[at].detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lora", [None, Lora(rank=2)])
def test_the_kl_to_the_reference_is_zero_before_the_first_step_and_not_after(
    policy: Policy, samples: list[TrainingSample], lora: Lora | None
) -> None:
    models = load(replace(policy, lora=lora), reference=True)
    optimizers, rng = optimizers_of(models, learning_rate=0.05), random.Random(0)
    rows = rows_of([replace(sample, returns=None) for sample in samples])
    loss = PolicyLoss(kl_coef=0.1)
    first = take_steps(models, optimizers, rows, loss, compute=compute(), rng=rng)
    second = take_steps(models, optimizers, rows, loss, compute=compute(), rng=rng)
    assert update_metrics(first)["kl_reference"] == pytest.approx(0.0, abs=1e-6)
    assert update_metrics(second)["kl_reference"] > 1e-4


def test_a_head_learns_without_moving_the_policy(policy: Policy, samples: list[TrainingSample]) -> None:
    models = load(policy, critic="head")
    optimizers, rng = optimizers_of(models), random.Random(0)
    before = {name: parameter.detach().clone() for name, parameter in models.trainable_policy().items()}
    rows = rows_of([replace(sample, advantages=[0.0] * len(sample.token_ids)) for sample in samples])
    losses = [
        update_metrics(take_steps(models, optimizers, rows, PolicyLoss(), compute=compute(), rng=rng))
        for _ in range(30)
    ]
    assert losses[-1]["value_loss"] < 0.8 * losses[0]["value_loss"]
    assert all(torch.equal(models.trainable_policy()[name], old) for name, old in before.items())


def test_updates_stop_before_the_step_once_the_policy_is_too_far(
    policy: Policy, samples: list[TrainingSample]
) -> None:
    models = load(policy)
    rows = rows_of([replace(sample, returns=None) for sample in samples])
    logprobs = row_logprobs(models, rows, compute(), reference=False)
    rows = [replace(row, old_logprobs_N=line) for row, line in zip(rows, logprobs, strict=True)]
    loss = PolicyLoss(epochs=50, max_kl=0.02)
    tally = take_steps(
        models, optimizers_of(models, 0.01), rows, loss, compute=compute(), rng=random.Random(0)
    )
    kls = [sums["kl"] / sums["tokens"] for sums in tally.minibatches]
    assert 1 <= len(tally.outcomes) < 50
    assert len(kls) == len(tally.outcomes) + 1
    assert kls[-1] > 0.02
    assert all(kl <= 0.02 for kl in kls[:-1])
    assert update_metrics(tally)["stopped_by_kl"] == 1.0
    assert all(parameter.grad is None for parameter in models.trainable_policy().values())


def test_gradient_checkpointing_changes_no_gradient(policy: Policy, samples: list[TrainingSample]) -> None:
    rows = rows_of([replace(sample, returns=None) for sample in samples])
    gradients: list[list[Any]] = []
    for checkpointing in (False, True):
        models = load(policy, gradient_checkpointing=checkpointing)
        assert models.policy.model.gradient_checkpointing is checkpointing
        _gather_gradients(models, rows, PolicyLoss(), compute(), trains_policy=True)
        gradients.append([parameter.grad for parameter in models.trainable_policy().values()])
    for plain, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, recomputed, rtol=1e-5, atol=1e-7)


def test_metrics_are_means_over_tokens_and_steps(policy: Policy, samples: list[TrainingSample]) -> None:
    models = load(policy, critic="head")
    loss = PolicyLoss(minibatch_rollouts=2, epochs=2)
    tally = take_steps(
        models, optimizers_of(models), rows_of(samples), loss, compute=compute(), rng=random.Random(0)
    )
    metrics = update_metrics(tally)
    tokens = [sums["tokens"] for sums in tally.minibatches]
    assert len(tokens) == 6  # 5 rollouts, at most 2 at a time: 3 minibatches, twice
    assert sum(tokens) == 2 * sum(sum(sample.loss_mask) for sample in samples)
    expected = np.average([sums["entropy"] / sums["tokens"] for sums in tally.minibatches], weights=tokens)
    assert metrics["entropy"] == pytest.approx(expected)
    assert metrics["policy_loss"] == pytest.approx(
        np.mean([sums["policy_loss"] for sums in tally.minibatches])
    )
    assert metrics["grad_norm"] == pytest.approx(np.mean([outcome.grad_norm for outcome in tally.outcomes]))
    returns = np.concatenate([row.returns_N.numpy() for row in rows_of(samples) if row.returns_N is not None])
    errors = sum(sums["errors_squared"] for sums in tally.minibatches) / sum(tokens)
    assert metrics["explained_variance"] == pytest.approx(1 - errors / returns.var(), rel=1e-4)
    assert metrics["skipped_steps"] == metrics["stopped_by_kl"] == 0.0


def test_a_loss_that_needs_a_missing_model_names_the_setting(
    policy: Policy, samples: list[TrainingSample]
) -> None:
    models, rows = load(policy), rows_of(samples)
    with pytest.raises(ConfigError, match=r"set learner\.critic=head or model"):
        check_loss(models, rows, PolicyLoss())
    with pytest.raises(ConfigError, match=r"set learner\.reference=true"):
        check_loss(models, rows, PolicyLoss(kl_coef=0.1))


def test_the_policys_loss_needs_old_logprobs_and_advantages(
    policy: Policy, samples: list[TrainingSample]
) -> None:
    lacking = [replace(samples[0], advantages=None), replace(samples[1], old_logprobs=None), *samples[2:]]
    with pytest.raises(ValueError, match="2 of 9 samples have no old_logprobs or no advantages"):
        check_loss(load(policy, critic="head"), rows_of(lacking), PolicyLoss())


def test_preferences_need_a_reference_and_both_sides_of_each_pair(
    policy: Policy, samples: list[TrainingSample]
) -> None:
    pair = [replace(samples[0], pair_id="p", preferred=True), replace(samples[1], pair_id="p")]
    with pytest.raises(ConfigError, match=r"learner\.reference=true"):
        check_loss(load(policy), rows_of(pair), PreferenceLoss())
    models = load(policy, reference=True)
    check_loss(models, rows_of(pair), PreferenceLoss())
    with pytest.raises(ValueError, match="1 of 1 pairs lack a side, first p"):
        check_loss(models, rows_of(pair[:1]), PreferenceLoss())
    with pytest.raises(ValueError, match="1 of 2 pairs lack a side, first None"):
        check_loss(models, rows_of([*pair, samples[2]]), PreferenceLoss())


def test_returns_of_some_samples_only_are_refused(policy: Policy, samples: list[TrainingSample]) -> None:
    models = load(policy, critic="head")
    with pytest.raises(ValueError, match="8 of 9 samples have returns"):
        check_loss(models, rows_of([replace(samples[0], returns=None), *samples[1:]]), PolicyLoss())
    with pytest.raises(ValueError, match="old_values"):
        check_loss(
            models, rows_of([replace(s, old_values=None) for s in samples]), PolicyLoss(value_clip=0.2)
        )


def test_a_closing_learner_stops_at_the_next_micro_batch(
    policy: Policy, samples: list[TrainingSample]
) -> None:
    with pytest.raises(RunStoppedError, match="closed"):
        row_logprobs(load(policy), rows_of(samples), compute(stopped=True), reference=False)
