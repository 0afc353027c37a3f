import orjson
import pytest
from responses_exchange import HELLO, USAGE, WEATHER, canonical, checked_response, function_call

from agl.proxy.dialects.openai_responses import OpenAIResponses
from agl.proxy.dialects.responses.answers import response_id, response_object, usage_of

CALLS = [function_call("call_1", "weather", '{ "city":"Zürich" }'), function_call("call_2", "weather", "{}")]
LOGPROB = {
    "token": "Hi",
    "bytes": [72, 105],
    "logprob": -0.5,
    "top_logprobs": [{"token": "Hi", "bytes": [72, 105], "logprob": -0.5}],
}


def asked(**fields):
    return OpenAIResponses().request(orjson.dumps({**HELLO, **fields}))


def response(answer, **fields):
    worded = orjson.loads(orjson.dumps(response_object(asked(**fields), answer)))
    assert checked_response(worded).status == worded["status"]
    return worded


def test_a_text_is_a_message_exact_to_its_whitespace():
    worded = response(canonical({"content": " \n Grüezi 👋\t\n"}))
    assert checked_response(worded).output_text == " \n Grüezi 👋\t\n"
    assert (worded["object"], worded["status"], worded["model"]) == ("response", "completed", "policy")
    assert worded["created_at"] == 1764500000
    (item,) = worded["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")


def test_reasoning_text_and_calls_are_items_in_this_order():
    message = {"content": "I look.\n", "reasoning_content": "Hm. ", "tool_calls": CALLS}
    output = response(canonical(message, finish_reason="tool_calls"))["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call", "function_call"]
    assert output[0]["content"] == [{"type": "reasoning_text", "text": "Hm. "}]
    assert output[1]["content"][0]["text"] == "I look.\n"
    assert [(item["call_id"], item["name"], item["arguments"]) for item in output[2:]] == [
        ("call_1", "weather", '{ "city":"Zürich" }'),
        ("call_2", "weather", "{}"),
    ]
    assert len({item["id"] for item in output}) == 4


@pytest.mark.parametrize("content", [None, ""])
def test_calls_without_a_text_have_no_message(content):
    output = response(canonical({"content": content, "tool_calls": CALLS}))["output"]
    assert [item["type"] for item in output] == ["function_call", "function_call"]


@pytest.mark.parametrize("content", [None, ""])
def test_an_empty_answer_is_an_empty_message(content):
    (item,) = response(canonical({"content": content}))["output"]
    assert item["content"] == [{"type": "output_text", "text": "", "annotations": [], "logprobs": []}]


def test_a_refusal_is_a_part_of_the_message():
    (item,) = response(canonical({"refusal": "I will not."}))["output"]
    assert item["content"] == [{"type": "refusal", "refusal": "I will not."}]


@pytest.mark.parametrize(
    ("finish_reason", "reason"),
    [("length", "max_output_tokens"), ("content_filter", "content_filter"), ("abort", None)],
)
def test_an_answer_that_was_cut_is_incomplete_and_says_why(finish_reason, reason):
    message = {"content": "I look", "tool_calls": CALLS[:1]}
    worded = response(canonical(message, finish_reason=finish_reason))
    assert (worded["status"], worded["incomplete_details"]) == ("incomplete", {"reason": reason})
    assert [item["status"] for item in worded["output"]] == ["completed", "incomplete"]


def test_usage_has_the_names_and_details_of_responses():
    assert usage_of(USAGE) == {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 18,
    }
    assert (
        usage_of({"prompt_tokens": 2, "completion_tokens": 3, "prompt_tokens_details": None})["total_tokens"]
        == 5
    )


def test_unknown_usage_stays_unknown():
    assert response({**canonical({"content": "x"}), "usage": None})["usage"] is None


def test_logprobs_are_shown_to_who_asked_for_them_only():
    answer = canonical({"content": "Hi"}, logprobs=[LOGPROB])
    assert response(answer)["output"][0]["content"][0]["logprobs"] == []
    include = ["message.output_text.logprobs"]
    assert response(answer, include=include)["output"][0]["content"][0]["logprobs"] == [LOGPROB]


def test_a_token_that_is_no_whole_character_has_no_bytes():
    answer = canonical({"content": "é"}, logprobs=[{"token": "\ufffd", "bytes": None, "logprob": -1.0}])
    part = response(answer, include=["message.output_text.logprobs"])["output"][0]["content"][0]
    assert part["logprobs"] == [{"token": "\ufffd", "bytes": [], "logprob": -1.0, "top_logprobs": []}]


def test_citations_are_flat():
    citation = {"start_index": 0, "end_index": 1, "title": "t", "url": "https://example.org"}
    message = {"content": "x", "annotations": [{"type": "url_citation", "url_citation": citation}]}
    (item,) = response(canonical(message))["output"]
    assert item["content"][0]["annotations"] == [{"type": "url_citation", **citation}]


def test_the_request_s_settings_are_repeated():
    fields = {
        "instructions": "Be brief.",
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "name": "weather"},
        "parallel_tool_calls": False,
        "temperature": 0.2,
        "top_p": 0.9,
        "max_output_tokens": 64,
        "metadata": {"a": "b"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "low"},
        "truncation": "auto",
        "user": "u",
        "store": False,
        "previous_response_id": "resp_1",
    }
    worded = response(canonical({"content": "x"}), **fields)
    assert {name: worded[name] for name in fields if name != "text"} == {
        name: value for name, value in fields.items() if name != "text"
    }
    assert worded["text"] == {"format": {"type": "text"}, "verbosity": "low"}


def test_what_was_not_set_is_the_api_s_default():
    worded = response(canonical({"content": "x"}))
    assert (worded["temperature"], worded["top_p"], worded["tool_choice"], worded["tools"]) == (
        1.0,
        1.0,
        "auto",
        [],
    )
    assert (worded["truncation"], worded["parallel_tool_calls"], worded["error"]) == ("disabled", True, None)


def test_ids_are_the_same_for_the_same_call_and_differ_for_another():
    call, later = (
        asked(),
        asked(input=[{"role": "user", "content": "hello"}, {"role": "user", "content": "again"}]),
    )
    assert response_id(call, "chatcmpl-7") == response_id(asked(stream=True), "chatcmpl-7")
    assert response_id(call, "chatcmpl-7").startswith("resp_7_")
    assert response_id(call, "chatcmpl-7") != response_id(later, "chatcmpl-7")
    assert response_id(call, "chatcmpl-7") != response_id(call, "chatcmpl-8")
    assert response_id(call, "resp_abc") == "resp_abc"
    assert response_id(call, None).startswith("resp_")


def test_a_call_without_an_id_gets_one():
    call = {"type": "function", "function": {"name": "weather", "arguments": "{}"}}
    (item,) = response(canonical({"tool_calls": [call]}))["output"]
    assert item["call_id"].startswith("call_")
