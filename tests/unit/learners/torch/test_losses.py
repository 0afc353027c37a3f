import math

import numpy as np
import pytest
import torch

from agl.learners.torch.losses import (
    clipped_surrogate,
    kl_divergence,
    logprobs_and_entropy,
    logprobs_of_targets,
    preference_loss,
    squared_value_error,
)

LN = math.log


def surrogate(
    ratios: list[float], advantages: list[float], **settings: float
) -> tuple[list[float], list[bool]]:
    logprobs = torch.tensor([LN(ratio) for ratio in ratios])
    old = torch.zeros(len(ratios))
    settings = {"clip_low": 0.2, "clip_high": 0.2, **settings}
    loss, ratio, clipped = clipped_surrogate(logprobs, old, torch.tensor(advantages), **settings)
    torch.testing.assert_close(ratio, torch.tensor(ratios), rtol=1e-6, atol=0)
    return loss.tolist(), clipped.tolist()


def test_the_clip_takes_away_what_goes_too_far_in_the_advantages_direction() -> None:
    # ratio 1.5, A=2: min(3, 1.2 * 2) = 2.4; ratio 0.5, A=2: min(1, 0.8 * 2) = 1
    # ratio 1.5, A=-2: min(-3, -2.4) = -3;   ratio 0.5, A=-2: min(-1, -1.6) = -1.6
    loss, clipped = surrogate([1.5, 0.5, 1.5, 0.5, 1.1], [2.0, 2.0, -2.0, -2.0, 2.0])
    assert loss == pytest.approx([-2.4, -1.0, 3.0, 1.6, -2.2], rel=1e-6)
    assert clipped == [True, False, False, True, False]


def test_the_clip_borders_can_differ() -> None:
    loss, clipped = surrogate([1.25, 0.85], [1.0, -1.0], clip_low=0.1, clip_high=0.28)
    assert loss == pytest.approx([-1.25, 0.9], rel=1e-6)
    assert clipped == [False, True]


def test_the_dual_clip_bounds_the_loss_of_bad_tokens() -> None:
    # A=-1: the ratio 10 would cost 10; c=3 makes it max(-10, 3 * -1) = -3. A positive advantage is untouched.
    loss, clipped = surrogate([10.0, 2.0, 10.0], [-1.0, -1.0, 1.0], dual_clip=3.0)
    assert loss == pytest.approx([3.0, 2.0, -1.2], rel=1e-6)
    assert clipped == [True, False, True]


def test_clipped_tokens_have_no_gradient_and_others_that_of_the_policy_gradient() -> None:
    logprobs = torch.tensor([LN(1.5), LN(1.5), 0.0, LN(10.0)], requires_grad=True)
    loss, _, clipped = clipped_surrogate(
        logprobs,
        torch.zeros(4),
        torch.tensor([1.0, -1.0, 1.0, -1.0]),
        clip_low=0.2,
        clip_high=0.2,
        dual_clip=3.0,
    )
    loss.sum().backward()
    assert logprobs.grad is not None
    # d(-r A)/d logprob = -r A
    assert logprobs.grad.tolist() == pytest.approx([0.0, 1.5, -1.0, 0.0])
    assert clipped.tolist() == [True, False, False, True]


def test_the_surrogate_equals_an_independent_reference_in_float64() -> None:
    rng = np.random.default_rng(0)
    logprobs, old, advantages = rng.normal(-2, 1, 500), rng.normal(-2, 1, 500), rng.normal(0, 1, 500)
    # Formula of arXiv:1912.09729, eq. 5: max(min(r A, clip(r) A), c A) where A < 0.
    ratio = np.exp(logprobs - old)
    objective = np.minimum(ratio * advantages, np.clip(ratio, 0.8, 1.3) * advantages)
    objective = np.where(advantages < 0, np.maximum(objective, 2.0 * advantages), objective)
    loss, _, _ = clipped_surrogate(
        *(torch.tensor(values, dtype=torch.float32) for values in (logprobs, old, advantages)),
        clip_low=0.2,
        clip_high=0.3,
        dual_clip=2.0,
    )
    np.testing.assert_allclose(loss.numpy(), -objective, rtol=2e-5, atol=1e-6)


def test_a_ratio_beyond_float32_stays_finite() -> None:
    loss, ratio, _ = clipped_surrogate(
        torch.tensor([0.0]), torch.tensor([-200.0]), torch.tensor([-1.0]), clip_low=0.2, clip_high=0.2
    )
    assert ratio.item() == pytest.approx(math.exp(20), rel=1e-6)
    assert torch.isfinite(loss).all()


def test_the_kl_estimators_are_schulmans() -> None:
    # policy 0.5, reference 0.25: log r = ln 0.5; k1 = 0.693147, k2 = 0.240227, k3 = 0.5 - 1 + 0.693147 = 0.193147
    policy, reference = torch.tensor([LN(0.5)]), torch.tensor([LN(0.25)])
    assert kl_divergence(policy, reference, "k1").item() == pytest.approx(0.693147, abs=1e-6)
    assert kl_divergence(policy, reference, "k2").item() == pytest.approx(0.240227, abs=1e-6)
    assert kl_divergence(policy, reference, "k3").item() == pytest.approx(0.193147, abs=1e-6)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_the_unbiased_kl_estimators_average_to_the_kl(estimator: str) -> None:
    policy, reference = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.3, 0.3, 0.4])
    exact = (policy * (policy / reference).log()).sum()
    estimates = kl_divergence(policy.log(), reference.log(), estimator)  # type: ignore[arg-type]
    torch.testing.assert_close((policy * estimates).sum(), exact, rtol=1e-6, atol=1e-7)


def test_the_value_error_is_half_the_square() -> None:
    error = squared_value_error(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 2.0]))
    assert error.tolist() == [0.125, 2.0]


def test_the_value_clip_takes_the_worse_of_the_two_errors() -> None:
    # old 0, clip 0.2. value 1, return 1: moved to 0.2, (0.2 - 1)^2 / 2 = 0.32 is worse than 0.
    # value 1, return 0: 1 / 2 is worse than 0.2^2 / 2. value 0.1 is within the clip: (0.1 - 1)^2 / 2 = 0.405.
    error = squared_value_error(
        torch.tensor([1.0, 1.0, 0.1]), torch.tensor([1.0, 0.0, 1.0]), torch.zeros(3), clip=0.2
    )
    assert error.tolist() == pytest.approx([0.32, 0.5, 0.405])


def test_logprobs_and_entropy_are_those_of_the_tempered_distribution() -> None:
    # logits ln(1), ln(4) at temperature 2 are ln(1), ln(2): probabilities 1/3 and 2/3; at 1 they are 1/5 and 4/5.
    logits = torch.tensor([[0.0, LN(4.0)], [0.0, LN(4.0)]])
    logprobs, entropy = logprobs_and_entropy(
        logits, torch.tensor([1, 0]), torch.tensor([2.0, 1.0]), entropy_gradient=False
    )
    assert logprobs.tolist() == pytest.approx([LN(2 / 3), LN(1 / 5)])
    assert entropy.tolist() == pytest.approx(
        [-(LN(1 / 3) / 3 + 2 * LN(2 / 3) / 3), -(LN(0.2) * 0.2 + LN(0.8) * 0.8)]
    )


def test_a_token_that_is_ruled_out_leaves_entropy_and_its_gradient_finite() -> None:
    logits = torch.tensor([[0.0, 0.0, -math.inf]], requires_grad=True)
    _, entropy = logprobs_and_entropy(logits, torch.tensor([0]), None, entropy_gradient=True)
    entropy.sum().backward()
    assert entropy.item() == pytest.approx(LN(2))
    assert logits.grad is not None
    assert torch.isfinite(logits.grad[0, :2]).all()


def test_bfloat16_logits_give_float32_losses() -> None:
    logprobs, entropy = logprobs_and_entropy(
        torch.zeros((1, 4), dtype=torch.bfloat16), torch.tensor([0]), None, entropy_gradient=False
    )
    assert logprobs.dtype == entropy.dtype == torch.float32


def test_the_likelihood_alone_is_what_comes_with_the_entropy() -> None:
    logits, targets = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]]), torch.tensor([2, 0])
    temperatures = torch.tensor([1.0, 0.5])
    # softmax of (0, 1, 2) at 2: e^2 / (1 + e + e^2); of (6, 0, 0) at 0: e^6 / (e^6 + 2)
    by_hand = [LN(math.e**2 / (1 + math.e + math.e**2)), LN(math.e**6 / (math.e**6 + 2))]
    assert logprobs_of_targets(logits, targets, temperatures).tolist() == pytest.approx(by_hand, rel=1e-4)
    both, _ = logprobs_and_entropy(logits, targets, None, entropy_gradient=False)
    torch.testing.assert_close(logprobs_of_targets(logits, targets, None), both, rtol=1e-6, atol=1e-7)


def test_preference_is_the_logistic_loss_of_the_two_sides_log_ratios() -> None:
    better, worse = torch.tensor([2.0, -1.0]), torch.tensor([-1.0, 2.0])
    # beta 0.1: -log sigmoid(0.3) = log(1 + e^-0.3), and log(1 + e^0.3) the wrong way round
    by_hand = [LN(1 + math.exp(-0.3)), LN(1 + math.exp(0.3))]
    assert preference_loss(better, worse, beta=0.1).tolist() == pytest.approx(by_hand, rel=1e-6)
    assert preference_loss(better, better, beta=0.1).tolist() == pytest.approx([LN(2)] * 2, rel=1e-6)
