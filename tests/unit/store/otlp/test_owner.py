from __future__ import annotations

from typing import Any

import pytest

from agl.store.otlp.owner import NOBODY, Owner, UnreadableOwnerError, owner_from_headers, take_owner


def test_the_keys_of_attribution_are_taken_off() -> None:
    attributes = {"agl.rollout_id": "ro", "agl.attempt_id": "at", "agl.span_sequence_id": 4, "tokens": 2}
    assert take_owner(attributes) == (Owner("ro", "at"), 4)
    assert attributes == {"tokens": 2}


def test_the_keys_of_agent_lightning_are_known() -> None:
    attributes = {
        "agentlightning.rollout_id": "ro",
        "agentlightning.attempt_id": "at",
        "agentlightning.span_sequence_id": "7",
    }
    assert take_owner(attributes) == (Owner("ro", "at"), 7)
    assert attributes == {}


def test_our_keys_win() -> None:
    attributes = {"agentlightning.rollout_id": "theirs", "agl.rollout_id": "ours"}
    assert take_owner(attributes) == (Owner("ours"), None)


def test_attributes_without_such_keys_stay_as_they_are() -> None:
    attributes = {"agl.reward.value": 1.0}
    assert take_owner(attributes) == (NOBODY, None)
    assert attributes == {"agl.reward.value": 1.0}


def test_empty_ids_name_nobody() -> None:
    assert take_owner({"agl.rollout_id": "", "agentlightning.rollout_id": ""}) == (NOBODY, None)


def test_a_whole_number_is_an_id() -> None:
    assert take_owner({"agl.rollout_id": 12}) == (Owner("12"), None)


@pytest.mark.parametrize("value", [True, 1.5, ["ro"], {"id": "ro"}, "x" * 201])
def test_what_cannot_be_an_id_is_refused(value: Any) -> None:
    with pytest.raises(UnreadableOwnerError, match=r"^agl\.attempt_id is "):
        take_owner({"agl.attempt_id": value})


@pytest.mark.parametrize("value", [0, -1, 1 << 53, "x", "-2", "²", "1.5", 1.5, True, None, "9" * 30])
def test_a_sequence_id_that_cannot_be_met_is_no_wish(value: Any) -> None:
    assert take_owner({"agl.rollout_id": "ro", "agl.span_sequence_id": value}) == (Owner("ro"), None)


@pytest.mark.parametrize(
    ("inner", "outer", "both"),
    [
        (NOBODY, Owner("ro", "at"), Owner("ro", "at")),
        (Owner("ro", "at"), Owner("other", "else"), Owner("ro", "at")),
        (Owner("ro"), Owner("ro", "at"), Owner("ro", "at")),
        (Owner("ro"), Owner(None, "at"), Owner("ro", "at")),
        (Owner(None, "at"), Owner("ro", "else"), Owner("ro", "at")),
    ],
)
def test_the_nearest_place_wins_and_farther_ones_fill_in(inner: Owner, outer: Owner, both: Owner) -> None:
    assert inner.or_else(outer) == both


def test_an_attempt_is_never_taken_from_another_rollout() -> None:
    assert Owner("ro").or_else(Owner("other", "at")) == Owner("ro")


def test_a_scoped_token_is_for_its_attempt() -> None:
    allowed = Owner("ro", "at")
    assert NOBODY.refusal(allowed) is None
    assert Owner("ro", "at").refusal(allowed) is None
    assert Owner("other").refusal(allowed) == "the token is for another rollout than 'other'"
    assert Owner("ro", "else").refusal(allowed) == "the token is for another attempt than 'else'"


def test_headers_name_an_owner() -> None:
    assert owner_from_headers({"x-agl-rollout-id": "ro", "x-agl-attempt-id": "at"}) == Owner("ro", "at")
    assert owner_from_headers({"x-agl-rollout-id": ""}) == NOBODY
    with pytest.raises(UnreadableOwnerError, match="x-agl-attempt-id is longer than 200 characters"):
        owner_from_headers({"x-agl-attempt-id": "x" * 201})
