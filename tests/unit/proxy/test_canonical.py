import pytest

from agl.errors import InferenceError
from agl.proxy.canonical import (
    ReadingAnswer,
    checked_answer,
    choices_of,
    token_count,
    upstream_chat,
    upstream_error,
)

HELLO = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}


def test_unknown_fields_of_a_request_are_passed_on():
    chat = {**HELLO, "chat_template_kwargs": {"thinking": False}}
    assert upstream_chat(chat, {})["chat_template_kwargs"] == {"thinking": False}


def test_the_upstream_is_always_asked_for_ids_logprobs_and_a_said_temperature():
    asked = upstream_chat({**HELLO, "logprobs": False}, {})
    assert asked == {**HELLO, "temperature": 1.0, "logprobs": True, "return_token_ids": True}


def test_forced_sampling_wins_over_the_request():
    asked = upstream_chat({**HELLO, "temperature": 0.2, "top_p": 0.9}, {"temperature": 0.7})
    assert (asked["temperature"], asked["top_p"]) == (0.7, 0.9)


@pytest.mark.parametrize(
    ("forced", "asked_for", "expected"),
    [
        ("max_tokens", "max_completion_tokens", {"max_tokens": 20}),
        ("max_tokens", "max_tokens", {"max_tokens": 20}),
        ("max_completion_tokens", "max_tokens", {"max_completion_tokens": 20}),
        ("max_output_tokens", "max_tokens", {"max_completion_tokens": 20}),
        ("max_output_tokens", "max_completion_tokens", {"max_completion_tokens": 20}),
    ],
)
def test_a_forced_token_limit_replaces_the_limit_under_any_of_its_names(forced, asked_for, expected):
    asked = upstream_chat({**HELLO, asked_for: 500}, {forced: 20})
    assert {name: value for name, value in asked.items() if name.startswith("max_")} == expected


@pytest.mark.parametrize("forced", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
def test_text_completions_are_limited_by_the_only_name_they_know(forced):
    asked = upstream_chat({"model": "policy", "prompt": "once", "max_tokens": 500}, {forced: 20})
    assert {name: value for name, value in asked.items() if name.startswith("max_")} == {"max_tokens": 20}


def test_choices_come_in_the_order_of_their_index(answer_of):
    answer = answer_of(1, 3)
    answer["choices"].reverse()
    assert [choice["index"] for choice in choices_of(answer)] == [0, 1, 2]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"choices": []},
        {"choices": "x"},
        {"choices": [{"text": "x"}]},
        {"choices": [{"message": 1}]},
    ],
)
def test_an_answer_of_another_shape_is_the_upstreams_fault(answer):
    with pytest.raises(InferenceError) as caught:
        checked_answer(answer)
    assert caught.value.status == 502


@pytest.mark.parametrize("count", [None, "3", True, -1, 3.0, 2**41, [3]])
def test_a_count_that_cannot_be_is_none(count):
    assert token_count({"prompt_tokens": count}, "prompt_tokens") is None
    assert token_count(count, "prompt_tokens") is None


def test_a_count_is_a_whole_number():
    assert token_count({"prompt_tokens": 0, "completion_tokens": 2**40}, "prompt_tokens") == 0
    assert token_count({"prompt_tokens": 0, "completion_tokens": 2**40}, "completion_tokens") == 2**40


@pytest.mark.parametrize(
    "error", [KeyError("x"), TypeError("deep"), ValueError("x"), IndexError(), AttributeError()]
)
def test_an_answer_that_cannot_be_read_is_the_model_servers_failure(error):
    with pytest.raises(InferenceError, match=type(error).__name__) as caught, ReadingAnswer():
        raise error
    assert caught.value.status == 502


def test_another_failure_stays_what_it_is():
    refusal = InferenceError("busy", status=429)
    with pytest.raises(InferenceError) as caught, ReadingAnswer():
        raise refusal
    assert caught.value is refusal


def test_an_upstreams_error_is_repeated_if_it_can_be_written():
    deep = {"error": {}}
    for _ in range(300):
        deep = {"error": deep}
    assert upstream_error({"error": {"message": "busy"}}) == {"error": {"message": "busy"}}
    assert [upstream_error(body) for body in (deep, "busy", None, [1])] == [None] * 4
