import copy
import math

import pytest
import torch
from torch import nn

from agl.errors import AglError, ConfigError
from agl.learners.torch.optimizers import Optimizers, OptimizerSettings


def settings(**changes: object) -> OptimizerSettings:
    plain = {
        "learning_rate": 0.1,
        "warmup_steps": 0,
        "schedule": "constant",
        "weight_decay": 0.0,
        "beta1": 0.9,
        "beta2": 0.95,
        "max_grad_norm": 1.0,
        "critic_learning_rate": 0.01,
        "critic_warmup_steps": 0,
    }
    return OptimizerSettings(**(plain | changes))  # type: ignore[arg-type]


def parameter(*values: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor([list(values)]))


def push(weight: nn.Parameter, *gradient: float) -> None:
    weight.grad = torch.tensor([list(gradient)])


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 0.0},
        {"critic_learning_rate": -1.0},
        {"max_grad_norm": math.nan},
        {"warmup_steps": -1},
        {"weight_decay": -0.1},
        {"beta1": 1.0},
        {"beta2": -0.1},
    ],
)
def test_a_wrong_setting_is_named(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"learner.({'|'.join(change)})="):
        settings(**change)


def test_a_step_is_adamws() -> None:
    ours, theirs = parameter(1.0, -2.0), parameter(1.0, -2.0)
    optimizers = Optimizers([ours], [], [], settings(weight_decay=0.1))
    peer = torch.optim.AdamW([theirs], lr=0.1, betas=(0.9, 0.95), weight_decay=0.1, foreach=False)
    for gradient in ((0.3, 0.1), (-0.2, 0.4)):
        push(ours, *gradient)
        push(theirs, *gradient)
        optimizers.step(1.0)
        peer.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    assert optimizers.steps == 2


def test_weight_decay_spares_vectors() -> None:
    vector, matrix = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2, 2))
    vector.grad, matrix.grad = torch.zeros(2), torch.zeros(2, 2)
    Optimizers([vector, matrix], [], [], settings(weight_decay=0.5)).step(0.0)
    assert vector.tolist() == [1.0, 1.0]
    assert matrix[0, 0].item() == pytest.approx(1 - 0.1 * 0.5)


def test_policy_and_critic_are_clipped_apart_at_their_own_rates() -> None:
    policy, head, backbone = parameter(0.0), parameter(0.0), parameter(0.0)
    optimizers = Optimizers([policy], [head], [backbone], settings(max_grad_norm=2.0))
    push(policy, 1.5)
    push(head, 300.0)
    push(backbone, 400.0)
    outcome = optimizers.step(1.0)
    assert outcome.grad_norm == pytest.approx(1.5)  # the critic's 500 are not in it
    # Adam's first step is the learning rate, whatever the gradient.
    assert policy.item() == pytest.approx(-0.1, rel=1e-4)
    assert head.item() == pytest.approx(-0.01, rel=1e-4)
    assert backbone.item() == pytest.approx(-0.1, rel=1e-4)


def test_the_critic_warms_up_alone() -> None:
    policy, head = parameter(0.0), parameter(0.0)
    optimizers = Optimizers([policy], [head], [], settings(critic_warmup_steps=1, warmup_steps=2))
    assert not optimizers.trains_policy
    push(head, 1.0)
    assert optimizers.step(1.0).learning_rate == 0.0
    assert policy.item() == 0.0
    assert head.item() < 0
    assert optimizers.trains_policy
    push(policy, 1.0)
    assert optimizers.step(1.0).learning_rate == pytest.approx(0.05)  # the policy's own warmup begins here
    assert policy.item() < 0


@pytest.mark.parametrize(("loss", "gradient"), [(math.nan, 1.0), (1.0, math.inf), (math.inf, 1.0)])
def test_a_step_that_is_not_finite_is_refused(loss: float, gradient: float) -> None:
    weight = parameter(1.0)
    optimizers = Optimizers([weight], [], [], settings())
    push(weight, gradient)
    assert not optimizers.step(loss).taken
    assert weight.item() == 1.0
    assert weight.grad is None
    assert optimizers.steps == 0


def test_three_refused_steps_in_a_row_are_an_error() -> None:
    weight = parameter(1.0)
    optimizers = Optimizers([weight], [], [], settings())

    def step(loss: float) -> None:
        push(weight, 1.0)
        optimizers.step(loss)

    step(math.nan)
    step(math.nan)
    step(1.0)  # a good one in between
    step(math.nan)
    step(math.nan)
    with pytest.raises(AglError, match="refused 3 optimizer steps in a row"):
        step(math.nan)


def test_restored_optimizers_go_on_under_the_new_settings() -> None:
    first, second = parameter(1.0, 2.0), parameter(1.0, 2.0)
    optimizers = Optimizers([first], [], [], settings())
    push(first, 0.5, -0.5)
    optimizers.step(1.0)
    restored = Optimizers([second], [], [], settings(learning_rate=0.2))
    with torch.no_grad():
        second.copy_(first)
    restored.restore(copy.deepcopy(optimizers.state()))
    push(first, 0.1, 0.2)
    push(second, 0.1, 0.2)
    before = first.detach().clone()
    optimizers.step(1.0)
    outcome = restored.step(1.0)
    assert outcome.learning_rate == 0.2
    torch.testing.assert_close(second - before, 2 * (first - before), rtol=1e-5, atol=1e-7)
    assert restored.steps == 2
