import pytest

from agl.errors import InferenceError
from agl.proxy.canonical import checked_answer, choices_of, upstream_chat

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
