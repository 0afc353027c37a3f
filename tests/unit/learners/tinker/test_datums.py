import math
from dataclasses import replace

import pytest

from agl.errors import ConfigError
from agl.learners.tinker.datums import (
    RemoteLoss,
    check_loss,
    loss_inputs,
    remote_loss,
    row_from_sample,
    row_from_trajectory,
)
from agl.types.sample import LikelihoodLoss, PolicyLoss, PreferenceLoss, TrainingSample

SAMPLE = TrainingSample(
    rollout_id="r1",
    token_ids=[5, 6, 7, 8, 9, 4],
    loss_mask=[0, 0, 1, 0, 1, 0],
    old_logprobs=[0.0, 0.0, -0.5, 0.0, -1.5, 0.0],
    advantages=[9.0, 9.0, 1.0, 9.0, 2.0, 9.0],
    weight=0.5,
)


def test_each_input_stands_beside_the_token_that_follows_and_what_comes_after_the_last_sampled_one_is_left_out() -> (
    None
):
    row = row_from_sample(SAMPLE)
    assert row is not None
    assert (row.inputs, row.targets) == ([5, 6, 7, 8], [6, 7, 8, 9])
    assert loss_inputs(row, 0.25, PolicyLoss()) == {
        "target_tokens": [6, 7, 8, 9],
        "logprobs": [0.0, -0.5, 0.0, -1.5],
        "advantages": [0.0, 0.25, 0.0, 0.5],
    }
    assert loss_inputs(row, 0.25, LikelihoodLoss()) == {
        "target_tokens": [6, 7, 8, 9],
        "weights": [0.0, 0.25, 0.0, 0.25],
    }
    assert row.picked([1.0, 2.0, 3.0, 4.0]) == [2.0, 4.0]
    assert row.weight == 0.5


def test_a_sequence_without_a_sampled_token_is_no_row() -> None:
    assert row_from_sample(replace(SAMPLE, loss_mask=[0] * 6)) is None


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"loss_mask": [0, 1]}, ValueError, "rollout r1: 6 token_ids, 2 loss_mask"),
        ({"loss_mask": [1, 0, 0, 0, 0, 0]}, ValueError, "rollout r1: the first token"),
        ({"advantages": [1.0]}, ValueError, "rollout r1: 1 advantages for 6 token_ids"),
        (
            {"temperature": 0.5},
            ConfigError,
            "rollout r1 was sampled at temperature 0.5.*algorithm.temperature=1",
        ),
        ({"returns": [0.0] * 6}, ConfigError, "value model.*algorithm=grpo"),
    ],
)
def test_a_sample_that_cannot_be_learned_from_is_refused(
    change: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        row_from_sample(replace(SAMPLE, **change))  # type: ignore[arg-type]


def test_a_policy_step_needs_old_logprobs_and_a_likelihood_step_does_not() -> None:
    row = row_from_trajectory(SAMPLE)
    assert row is not None
    assert loss_inputs(row, 1.0, LikelihoodLoss())
    with pytest.raises(ValueError, match="r1 has no old_logprobs"):
        loss_inputs(row, 1.0, PolicyLoss())


def test_losses_have_the_services_names() -> None:
    assert remote_loss(LikelihoodLoss()) == RemoteLoss(name="cross_entropy")
    assert remote_loss(PolicyLoss(clip_low=0.25, clip_high=0.5)) == RemoteLoss(
        name="ppo", settings={"clip_low_threshold": 0.75, "clip_high_threshold": 1.5}
    )
    assert remote_loss(PolicyLoss(clip_low=1.0, clip_high=math.inf)) == RemoteLoss(name="importance_sampling")


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (PolicyLoss(kl_coef=0.1), r"algorithm\.kl_coef=0\.1"),
        (PolicyLoss(entropy_coef=0.01), r"algorithm\.entropy_coef=0\.01"),
        (PolicyLoss(dual_clip=3.0), r"algorithm\.dual_clip=3\.0"),
        (PolicyLoss(max_kl=0.1), r"algorithm\.max_kl=0\.1"),
        (PreferenceLoss(), "algorithm=dpo"),
    ],
)
def test_what_the_service_cannot_do_is_refused_by_its_setting(loss: PolicyLoss, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_loss(loss, needs_values=False)


def test_what_it_can_do_is_not_refused_but_values_are() -> None:
    check_loss(PolicyLoss(epochs=2, minibatch_rollouts=4, aggregation="rollout_mean"), needs_values=False)
    check_loss(LikelihoodLoss(), needs_values=False)
    with pytest.raises(ConfigError, match="use algorithm=grpo"):
        check_loss(PolicyLoss(), needs_values=True)
