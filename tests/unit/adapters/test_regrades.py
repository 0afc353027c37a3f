"""The reward that a grader gave later."""

from recorded_spans import call_span, reward_span

from agl.adapters.regrades import regraded_reward
from agl.adapters.triplets import calls_of_attempt
from agl.tracing.reward import Reward
from agl.types import Span
from agl.types import attributes as key


def regrade(sequence_id: int, value: float, grader: str) -> Span:
    span = reward_span(sequence_id, value)
    return span.changed(
        name=key.REGRADE_SPAN,
        attributes={**span.attributes, key.REGRADE_GRADER: grader, "agl.reward.dimension.form": 0.5},
    )


def test_the_newest_regrade_of_a_grader_is_the_one_that_counts() -> None:
    spans = [regrade(3, 0.25, "a"), regrade(4, 0.75, "b"), regrade(5, 1.0, "a")]
    assert regraded_reward(spans, grader="a") == Reward(value=1.0, dimensions={"form": 0.5})
    assert regraded_reward(spans, grader="b") == Reward(value=0.75, dimensions={"form": 0.5})
    assert regraded_reward(spans) == regraded_reward(spans, grader="a")
    assert regraded_reward(spans, grader="c") is None


def test_training_data_do_not_change_when_a_rollout_is_regraded() -> None:
    spans = [call_span(1, [1], [2]), reward_span(2, 0.5)]
    assert regraded_reward(spans) is None
    assert calls_of_attempt([*spans, regrade(3, 1.0, "a")]) == calls_of_attempt(spans)
