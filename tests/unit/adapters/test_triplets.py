"""Calls come out of spans exactly, or not at all and counted."""

from __future__ import annotations

import pytest
from recorded_spans import call_span, reward_span

from agl.adapters.triplets import calls_of_attempt
from agl.types import attributes as key
from agl.types.packing import packed_floats, packed_ids


def test_a_triplet_holds_the_very_ids_and_logprobs_of_the_span() -> None:
    calls = calls_of_attempt([call_span(1, [5, 6, 7], [8, 9])])
    (triplet,) = calls.triplets
    assert (list(triplet.prompt_ids), list(triplet.response_ids)) == ([5, 6, 7], [8, 9])
    assert list(triplet.response_logprobs) == [-0.5, -0.5]
    assert (triplet.policy_version, triplet.finish_reason, triplet.rollout_id) == (3, "stop", "r1")


def test_calls_come_in_the_order_of_their_sequence_ids_not_of_arrival() -> None:
    calls = calls_of_attempt([call_span(2, [1], [2]), call_span(1, [3], [4])])
    assert [list(triplet.prompt_ids) for triplet in calls.triplets] == [[3], [1]]


@pytest.mark.parametrize(
    ("attributes", "cause"),
    [
        ({key.MISSING_IDS_CAUSE: "upstream_without_ids"}, "upstream_without_ids"),
        ({key.PROMPT_TOKEN_IDS: "not base64!"}, "unreadable_token_ids"),
        ({key.RESPONSE_LOGPROBS: packed_floats([-1.0])}, "length_mismatch"),
        ({key.RESPONSE_TOKEN_IDS: packed_ids([])}, "empty_response"),
    ],
)
def test_a_call_without_exact_ids_is_dropped_and_counted_by_its_cause(
    attributes: dict[str, str], cause: str
) -> None:
    calls = calls_of_attempt([call_span(1, [1], [2, 3], **attributes), call_span(2, [4], [5])])
    assert calls.num_calls == 2
    assert dict(calls.dropped) == {cause: 1}
    assert [list(triplet.prompt_ids) for triplet in calls.triplets] == [[4]]


def test_every_choice_of_a_call_becomes_a_triplet() -> None:
    span = call_span(
        1,
        [1, 2],
        [3],
        **{
            key.CHOICE_COUNT: 2,
            key.of_choice(key.RESPONSE_TOKEN_IDS, 1): packed_ids([4, 5]),
            key.of_choice(key.RESPONSE_LOGPROBS, 1): packed_floats([-1.0, -2.0]),
            key.FINISH_REASONS: ["stop", "length"],
        },
    )
    first, second = calls_of_attempt([span]).triplets
    assert list(first.response_ids) == [3]
    assert list(second.response_ids) == [4, 5]
    assert second.finish_reason == "length"


def test_failed_calls_are_not_calls() -> None:
    assert calls_of_attempt([call_span(1, [1], [2], error=True)]).num_calls == 0


def test_only_the_named_agents_are_trained() -> None:
    spans = [
        call_span(1, [1], [2], agent="writer"),
        call_span(2, [3], [4], agent="checker-2"),
        call_span(3, [5], [6]),
    ]
    assert [t.agent for t in calls_of_attempt(spans, agents=["writer"]).triplets] == ["writer"]
    assert [t.agent for t in calls_of_attempt(spans, agents=[r"checker-\d"]).triplets] == ["checker-2"]
    assert len(calls_of_attempt(spans).triplets) == 3


def test_rewards_between_calls_belong_to_the_call_before_them() -> None:
    spans = [call_span(1, [1], [2]), reward_span(2, 0.25), reward_span(3, 0.5), call_span(4, [3], [4])]
    assert [triplet.reward for triplet in calls_of_attempt(spans).triplets] == [0.75, None]


def test_a_reward_that_arrives_late_belongs_to_the_call_before_its_emission() -> None:
    # Rewards are written in batches and calls at once: the second call's span overtakes the first call's reward.
    spans = [
        call_span(1, [1], [2]),
        call_span(2, [3], [4]),
        reward_span(3, 0.5, at_ns=1),
        reward_span(4, 0.25),
    ]
    assert [triplet.reward for triplet in calls_of_attempt(spans).triplets] == [0.5, 0.25]


def test_a_judge_between_call_and_reward_takes_nothing_from_the_trained_agent() -> None:
    spans = [
        call_span(1, [1], [2], agent="writer"),
        call_span(2, [3], [4], agent="judge"),
        reward_span(3, 0.5),
    ]
    assert [triplet.reward for triplet in calls_of_attempt(spans, agents=["writer"]).triplets] == [0.5]


def test_a_library_that_records_the_call_too_makes_no_second_call_of_it() -> None:
    recorded = call_span(1, [1], [2])
    by_library = recorded.model_copy(
        update={
            "span_id": "f" * 16,
            "sequence_id": 2,
            "start_time_ns": 2,
            "attributes": {key.INPUT_TOKENS: 1},
        }
    )
    calls = calls_of_attempt([recorded, by_library, reward_span(3, 0.5)])
    assert (calls.num_calls, dict(calls.dropped)) == (1, {})
    assert [triplet.reward for triplet in calls.triplets] == [0.5]


def test_the_reward_of_a_call_with_several_choices_counts_once() -> None:
    span = call_span(
        1,
        [1, 2],
        [3],
        **{
            key.CHOICE_COUNT: 3,
            key.of_choice(key.RESPONSE_TOKEN_IDS, 1): packed_ids([4]),
            key.of_choice(key.RESPONSE_LOGPROBS, 1): packed_floats([-1.0]),
            key.of_choice(key.MISSING_IDS_CAUSE, 2): "length_mismatch",
        },
    )
    assert [triplet.reward for triplet in calls_of_attempt([span, reward_span(2, 0.5)]).triplets] == [
        None,
        0.5,
    ]


def test_a_choice_without_ids_does_not_drop_the_others() -> None:
    span = call_span(
        1,
        [1, 2],
        [3],
        **{
            key.CHOICE_COUNT: 2,
            key.MISSING_IDS_CAUSE: "length_mismatch",
            key.of_choice(key.RESPONSE_TOKEN_IDS, 1): packed_ids([4]),
            key.of_choice(key.RESPONSE_LOGPROBS, 1): packed_floats([-1.0]),
        },
    )
    calls = calls_of_attempt([span])
    assert [list(triplet.response_ids) for triplet in calls.triplets] == [[4]]
    assert dict(calls.dropped) == {"length_mismatch": 1}
