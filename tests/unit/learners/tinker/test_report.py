import math

import pytest

from agl.learners.tinker.datums import Row
from agl.learners.tinker.report import UpdateMetrics, tally_of
from agl.types.sample import LikelihoodLoss, PolicyLoss

ROW = Row(
    rollout_id="r",
    token_ids=[1, 2, 3],
    positions=[1, 2],
    old_logprobs=[-1.0, -2.0],
    advantages=[1.0, -3.0],
)
NEW = [-1.0 + math.log(1.5), -2.0 + math.log(2.0)]


def test_a_policy_minibatch_in_numbers() -> None:
    loss = PolicyLoss(clip_low=0.2, clip_high=0.2)
    metrics = UpdateMetrics(loss=loss, learning_rate=0.1)
    metrics.tallies.append(tally_of([ROW], [NEW], [0.5], loss))
    metrics.service.append({"unclipped_grad_l2:mean": 3.0})
    # Ratio 1.5 with A 1 is clipped: -1.2; ratio 2 with A -3 is not: 6. Half of the sum is the mean of two tokens.
    assert metrics.metrics() == pytest.approx(
        {
            "loss": 2.4,
            "policy_loss": 2.4,
            "learning_rate": 0.1,
            "negative_logprob": -(NEW[0] + NEW[1]) / 2,
            "kl": -(math.log(1.5) + math.log(2.0)) / 2,
            "clip_fraction": 0.5,
            "ratio_max": 2.0,
            "logprob_gap_first": math.log(2.0),
            "tinker_unclipped_grad_l2_mean": 3.0,
        }
    )


def test_losses_are_means_over_minibatches_and_the_gap_is_the_first_ones() -> None:
    loss = PolicyLoss()
    metrics = UpdateMetrics(loss=loss)
    same = [-1.0, -2.0]
    metrics.tallies += [tally_of([ROW], [same], [0.5], loss), tally_of([ROW], [NEW], [0.5], loss)]
    found = metrics.metrics()
    assert found["loss"] == pytest.approx(((-1 + 3) / 2 + 2.4) / 2)
    assert found["logprob_gap_first"] == 0


def test_a_likelihood_minibatch_is_its_mean_negative_logprob() -> None:
    metrics = UpdateMetrics(loss=LikelihoodLoss())
    metrics.tallies.append(tally_of([ROW], [[-1.0, -3.0]], [0.5], LikelihoodLoss()))
    assert metrics.metrics() == {"loss": 2.0, "learning_rate": 0.0, "negative_logprob": 2.0}
