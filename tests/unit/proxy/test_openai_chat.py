import orjson
import pytest

from agl.errors import InferenceError
from agl.proxy.openai_chat import agent_answer, chat_from_body, checked_answer, choices_of, upstream_chat
from agl.proxy.refusal import CallRefusedError

HELLO = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}


def test_unknown_fields_of_a_request_are_passed_on():
    chat = chat_from_body(orjson.dumps({**HELLO, "chat_template_kwargs": {"thinking": False}}))
    assert upstream_chat(chat, {})["chat_template_kwargs"] == {"thinking": False}


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": ["hello"]}, "messages"),
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"n": 129}, "n"),
        ({"stream": True}, "stream"),
    ],
)
def test_a_wrong_shape_names_its_field(changed, param):
    with pytest.raises(CallRefusedError) as caught:
        chat_from_body(orjson.dumps({**HELLO, **changed}))
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize("body", [b"", b"nan", b'{"model": "\\ud800"}', b"[" * 5000, b"\x80"])
def test_what_is_not_json_is_refused(body):
    with pytest.raises(CallRefusedError):
        chat_from_body(body)


def test_the_upstream_is_always_asked_for_ids_logprobs_and_a_said_temperature():
    asked = upstream_chat({**HELLO, "logprobs": False, "stream_options": {}}, {})
    assert asked == {**HELLO, "temperature": 1.0, "stream": False, "logprobs": True, "return_token_ids": True}


def test_forced_sampling_wins_over_the_request():
    asked = upstream_chat({**HELLO, "temperature": 0.2, "top_p": 0.9}, {"temperature": 0.7})
    assert (asked["temperature"], asked["top_p"]) == (0.7, 0.9)


@pytest.mark.parametrize(
    ("forced", "other"), [("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")]
)
def test_a_forced_token_limit_replaces_the_limit_under_its_other_name(forced, other):
    asked = upstream_chat({**HELLO, other: 500}, {forced: 20})
    assert asked[forced] == 20
    assert other not in asked


def test_the_agents_answer_keeps_what_the_agent_asked_for(answer_of):
    answer = answer_of(1)
    shown = agent_answer(answer, {**HELLO, "logprobs": True, "return_token_ids": True})
    assert shown == {name: value for name, value in answer.items() if name != "policy_version"}
    only_logprobs = agent_answer(answer, {**HELLO, "logprobs": True})
    assert only_logprobs["choices"][0]["logprobs"] == answer["choices"][0]["logprobs"]
    assert "token_ids" not in only_logprobs["choices"][0]


def test_the_upstreams_answer_is_not_changed_by_showing_it(answer_of):
    answer = answer_of(1)
    agent_answer(answer, HELLO)
    assert answer == answer_of(1)


def test_choices_come_in_the_order_of_their_index(answer_of):
    answer = answer_of(1, 3)
    answer["choices"].reverse()
    assert [choice["index"] for choice in choices_of(answer)] == [0, 1, 2]


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"choices": []}, {"choices": "x"}, {"choices": [{"text": "x"}]}]
)
def test_an_answer_of_another_shape_is_the_upstreams_fault(answer):
    with pytest.raises(InferenceError) as caught:
        checked_answer(answer)
    assert caught.value.status == 502
