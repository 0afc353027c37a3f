"""What an evaluation between updates reports."""

from collections import Counter

from agl.algorithms.held_out import metrics_of_evaluations
from agl.evaluation.counts import RolloutCounts
from agl.evaluation.evaluate import Evaluation
from agl.evaluation.statistics import mean_reward


def evaluation(name: str, rewards: list[list[float]], counts: RolloutCounts) -> Evaluation:
    return Evaluation(name=name, reward=mean_reward(rewards), counts=counts, rollouts=[])


def test_means_are_reported_by_name_and_rollouts_without_a_reward_are_counted() -> None:
    whole = evaluation("val/reward", [[1.0], [0.0]], RolloutCounts(enqueued=2, succeeded=2))
    failed = RolloutCounts(enqueued=3, succeeded=2, failed=Counter(timeout=1), without_reward=1)
    part = evaluation("val/reward_greedy", [[1.0]], failed)
    assert metrics_of_evaluations([whole, part]) == {
        "val/reward": 0.5,
        "val/reward_greedy": 1.0,
        "val/reward_greedy_without_result": 2.0,
    }


def test_an_evaluation_without_any_reward_has_no_mean_and_no_zero() -> None:
    none = evaluation("val/reward", [[]], RolloutCounts(enqueued=1, failed=Counter(KeyError=1)))
    assert metrics_of_evaluations([none]) == {"val/reward_without_result": 1.0}
