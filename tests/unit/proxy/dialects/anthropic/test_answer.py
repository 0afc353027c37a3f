import json

import orjson
import pytest
from anthropic_exchange import DIALECT, WEATHER, call, chat_answer, read, valid
from hypothesis import given
from hypothesis import strategies as st

from agl.proxy.dialects.anthropic.answer import (
    content_blocks,
    first_choice,
    input_text,
    message,
    message_id,
    reasoning_of,
    stop_fields,
    text_of,
    tool_id,
    usage,
)

THINKING = {"thinking": {"type": "enabled", "budget_tokens": 2048}}


def answered(answer, **fields):
    return valid(DIALECT.answer(read(**fields), answer))


def test_a_text_is_one_block():
    assert answered(chat_answer({"content": "  4\n"})) == {
        "id": "msg_7",
        "type": "message",
        "role": "assistant",
        "model": "policy-1",
        "content": [{"type": "text", "text": "  4\n"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 11,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 5,
        },
    }


def test_parallel_tool_calls_are_blocks_behind_the_text():
    calls = [call("weather", '{"city": "Köln"}', "a"), call("now", "", "b")]
    told = answered(chat_answer({"content": "Let me look.", "tool_calls": calls}, finish_reason="tool_calls"))
    assert told["content"] == [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Köln"}},
        {"type": "tool_use", "id": "b", "name": "now", "input": {}},
    ]
    assert told["stop_reason"] == "tool_use"


def test_arguments_stand_in_the_answer_as_they_were_sampled():
    sampled = '{ "n":1.0, "big": 123456789012345678901234567890,\n "n": 1e2 }'
    body = DIALECT.answer(read(), chat_answer({"tool_calls": [call("f", sampled)]}))
    assert sampled.encode() in body


@pytest.mark.parametrize(
    "sampled", ['{"city": "Par', "Paris", "[1]", '{"a": NaN}', '{"a": "\\ud800"}', "}", '{"a": 1} tail']
)
def test_arguments_that_are_no_json_object_are_kept_to_the_letter(sampled):
    told = answered(chat_answer({"tool_calls": [call("f", sampled)]}, finish_reason="length"))
    assert told["content"][0]["input"] == {"INVALID_JSON": sampled}
    assert told["stop_reason"] == "max_tokens"


@given(st.text())
def test_any_text_of_arguments_becomes_a_json_object(sampled):
    assert isinstance(json.loads(input_text(sampled)), dict)


@pytest.mark.parametrize(
    ("arguments", "text"), [({"a": 1}, '{"a": 1}'), (None, "{}"), (" \n", "{}"), ({}, "{}")]
)
def test_arguments_that_came_as_an_object_or_not_at_all(arguments, text):
    assert input_text(arguments) == text


@pytest.mark.parametrize("content", [None, ""])
def test_an_empty_answer_is_an_empty_text(content):
    assert answered(chat_answer({"content": content}))["content"] == [{"type": "text", "text": ""}]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking_is_shown_to_who_asked_for_it(field):
    answer = chat_answer({"content": "4", field: " 2 and 2 "})
    asked = answered(answer, **THINKING)["content"]
    assert asked[0] == {"type": "thinking", "thinking": " 2 and 2 ", "signature": ""}
    omitted = answered(answer, thinking={"type": "adaptive", "display": "omitted"})["content"]
    assert omitted[0] == {"type": "thinking", "thinking": "", "signature": ""}
    assert asked[1:] == omitted[1:] == [{"type": "text", "text": "4"}]


def test_thinking_not_asked_for_is_not_shown():
    answer = chat_answer({"content": "4", "reasoning_content": "2 and 2"})
    assert answered(answer)["content"] == [{"type": "text", "text": "4"}]
    cut = chat_answer({"reasoning_content": "2 and"}, finish_reason="length")
    assert answered(cut)["content"] == [{"type": "text", "text": ""}]


@pytest.mark.parametrize(
    ("choice", "reason", "sequence"),
    [
        ({"finish_reason": "stop"}, "end_turn", None),
        ({"finish_reason": "length"}, "max_tokens", None),
        ({"finish_reason": "tool_calls"}, "tool_use", None),
        ({"finish_reason": "content_filter"}, "refusal", None),
        ({"finish_reason": "abort"}, "end_turn", None),
        ({"finish_reason": None}, "end_turn", None),
        ({"finish_reason": "stop", "stop_reason": "END"}, "stop_sequence", "END"),
        ({"finish_reason": "stop", "stop_reason": "forced by the proxy"}, "end_turn", None),
        ({"finish_reason": "stop", "stop_reason": 151645}, "end_turn", None),
    ],
)
def test_the_reason_of_the_stop(choice, reason, sequence):
    told = answered(chat_answer({"content": "x"}, **choice), stop_sequences=["END"])
    assert (told["stop_reason"], told["stop_sequence"]) == (reason, sequence)


def test_a_forced_call_that_a_server_ends_with_stop_is_a_tool_use():
    told = answered(chat_answer({"tool_calls": [call("weather", "{}")]}), tools=[WEATHER])
    assert told["stop_reason"] == "tool_use"


def test_a_refusal_is_its_text():
    told = answered(chat_answer({"refusal": "I cannot."}))
    assert (told["content"], told["stop_reason"]) == ([{"type": "text", "text": "I cannot."}], "refusal")


def test_cached_tokens_are_not_counted_among_the_input():
    answer = chat_answer({"content": "x"})
    answer["usage"] = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 64, "cache_creation_tokens": 6},
        "completion_tokens_details": {"reasoning_tokens": 12},
    }
    assert usage(answer) == {
        "input_tokens": 30,
        "cache_creation_input_tokens": 6,
        "cache_read_input_tokens": 64,
        "output_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 12},
    }
    assert answered(answer)["usage"] == usage(answer)


def test_without_a_usage_the_ids_are_counted():
    answer = chat_answer({"content": "x"}, token_ids=[4, 5, 2])
    del answer["usage"]
    counted = usage({**answer, "prompt_token_ids": [1, 2]})
    assert (counted["input_tokens"], counted["output_tokens"]) == (2, 3)
    assert usage({**answer, "choices": []})["output_tokens"] == 0


def test_a_message_holds_the_first_choice():
    answer = chat_answer({"content": "first"})
    answer["choices"].insert(0, {"index": 1, "message": {"content": "second"}, "finish_reason": "stop"})
    assert first_choice(answer)["message"]["content"] == "first"
    assert answered(answer)["content"] == [{"type": "text", "text": "first"}]


def test_ids():
    assert message_id("chatcmpl-1a") == "msg_1a"
    assert message_id("cmpl-1a") == "msg_cmpl-1a"
    assert message_id("msg_01") == "msg_01"
    assert message_id(None) == message_id("") == "msg_0"
    assert tool_id({"id": "call_1"}, "msg_7", 0) == "call_1"
    assert tool_id({"id": None}, "msg_7", 1) == "toolu_7_1"


def test_ids_and_logprobs_of_tokens_are_not_shown():
    answer = chat_answer({"content": "x"}, token_ids=[1], logprobs={"content": []})
    body = DIALECT.answer(read(), {**answer, "prompt_token_ids": [1], "policy_version": 3})
    assert b"token_ids" not in body
    assert b"logprobs" not in body
    assert b"policy_version" not in body


def test_what_the_provider_said_itself_is_said_again():
    blocks = [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "4"}]
    native = {"content": blocks, "stop_reason": "pause_turn", "stop_details": None}
    told = answered(chat_answer({"content": "4", "anthropic": native}))
    assert (told["content"], told["stop_reason"]) == (blocks, "pause_turn")


def test_a_message_without_a_model_has_the_one_that_was_asked():
    answer = chat_answer({"content": "x"})
    del answer["model"]
    assert message(read(), answer)["model"] == "policy"


def test_blocks_and_stop_of_a_bare_message():
    assert content_blocks(read(), {}, "msg_1") == [{"type": "text", "text": ""}]
    assert stop_fields(read(), {}) == {"stop_reason": "end_turn", "stop_sequence": None}
    assert (text_of({"content": None}), reasoning_of({"reasoning": None})) == ("", "")
    assert orjson.loads(orjson.dumps(message(read(), chat_answer({}))))["content"][0]["text"] == ""
