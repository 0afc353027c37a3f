import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from responses_exchange import (
    HELLO,
    USAGE,
    assembled,
    canonical,
    checked_events,
    checked_response,
    chunked,
    events_in,
    function_call,
    streamed,
)

from agl.errors import InferenceError
from agl.proxy.dialects.openai_responses import OpenAIResponses
from agl.proxy.dialects.responses.answers import BESIDE
from agl.proxy.dialects.responses.native import (
    ResponseReader,
    chat_answer_from_native,
    chat_usage,
    delta_of_message,
)
from agl.proxy.streams import StreamedAnswer

MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": " Hi ", "annotations": [], "logprobs": []}],
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "weather",
    "arguments": '{ "a":"é"}',
    "status": "completed",
}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Second."}],
    "encrypted_content": "gA==",
}
NATIVE_USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 18,
}
NATIVE = {
    "id": "resp_abc",
    "object": "response",
    "created_at": 1764500000.0,
    "status": "completed",
    "model": "gpt",
    "output": [MESSAGE],
    "usage": NATIVE_USAGE,
}


def read(events):
    reader = ResponseReader()
    return [chunk for event in events for chunk in reader.event(event["type"], event)]


def test_a_response_is_a_chat_completion():
    answer = chat_answer_from_native({**NATIVE, "service_tier": "default"})
    assert answer == {
        "id": "resp_abc",
        "object": "chat.completion",
        "created": 1764500000,
        "model": "gpt",
        "service_tier": "default",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": " Hi "},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "total_tokens": 18,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
    }


def test_items_of_all_kinds_are_one_message():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    custom = {"type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": "*** a"}
    refusal = {**MESSAGE, "content": [{"type": "refusal", "refusal": "No."}]}
    output = [REASONING, search, MESSAGE, CALL, custom, refusal]
    choice = chat_answer_from_native({**NATIVE, "output": output})["choices"][0]
    assert choice["message"].pop(BESIDE) == {"output": output}
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {
        "role": "assistant",
        "content": " Hi ",
        "refusal": "No.",
        "reasoning_content": "First.\n\nSecond.",
        "tool_calls": [
            function_call("call_1", "weather", '{ "a":"é"}'),
            {"id": "call_2", "type": "custom", "custom": {"name": "patch", "input": "*** a"}},
        ],
    }


def test_reasoning_that_is_spelled_out_is_taken_before_its_summary():
    part = {"type": "reasoning_text", "text": "Hm."}
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [part]}
    message = chat_answer_from_native({**NATIVE, "output": [item]})["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "", "reasoning_content": "Hm."}


def test_the_finish_reason_is_that_of_the_status():
    def reason(**fields):
        return chat_answer_from_native({**NATIVE, **fields})["choices"][0]["finish_reason"]

    assert reason(status="incomplete", incomplete_details={"reason": "max_output_tokens"}) == "length"
    assert reason(status="incomplete", incomplete_details={"reason": "content_filter"}) == "content_filter"
    assert reason(output=[CALL]) == "tool_calls"


def test_unknown_usage_stays_unknown():
    assert chat_usage(None) is None
    assert chat_usage({"input_tokens": 1, "output_tokens": 2})["total_tokens"] == 3


def test_logprobs_are_the_choice_s():
    logprob = {"token": "Hi", "bytes": [72, 105], "logprob": -0.5, "top_logprobs": []}
    part = {**MESSAGE["content"][0], "logprobs": [logprob]}
    choice = chat_answer_from_native({**NATIVE, "output": [{**MESSAGE, "content": [part]}]})["choices"][0]
    assert choice["logprobs"] == {"content": [logprob]}


def test_a_stream_that_ends_at_once_still_says_all():
    created = {"type": "response.created", "response": {**NATIVE, "status": "in_progress", "output": []}}
    done = {"type": "response.completed", "response": {**NATIVE, "output": [MESSAGE, CALL]}}
    chunks = read([created, done])
    whole = assembled(chunks)
    assert whole["message"]["content"] == " Hi "
    assert whole["message"]["tool_calls"] == [function_call("call_1", "weather", '{ "a":"é"}')]
    assert (whole["finish_reason"], whole["usage"]) == ("tool_calls", chat_usage(NATIVE_USAGE))
    assert {(chunk["id"], chunk["model"]) for chunk in chunks} == {("resp_abc", "gpt")}


def test_items_without_deltas_are_read_at_their_end():
    place = {"output_index": 1}
    begun = {"type": "response.output_item.added", **place, "item": {**CALL, "arguments": ""}}
    delta = {"type": "response.function_call_arguments.delta", **place, "delta": '{ "a'}
    ended = {"type": "response.output_item.done", **place, "item": CALL}
    text = {"type": "response.output_text.delta", "output_index": 0, "delta": " H", "logprobs": []}
    text_ended = {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE}
    reasoned = {"type": "response.output_item.done", "output_index": 2, "item": REASONING}
    alone = {"type": "response.output_item.done", "output_index": 3, "item": {**CALL, "call_id": "call_2"}}
    message = assembled(read([begun, delta, ended, text, text_ended, reasoned, alone]))["message"]
    assert message["content"] == " Hi "
    assert message["reasoning_content"] == "First.\n\nSecond."
    assert message["tool_calls"] == [
        function_call("call_1", "weather", '{ "a":"é"}'),
        function_call("call_2", "weather", '{ "a":"é"}'),
    ]


def test_the_input_of_a_custom_tool_is_read():
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "patch", "input": ""}
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "*** "},
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "input": "*** a"}},
    ]
    (call,) = assembled(read(events))["message"]["tool_calls"]
    assert call == {"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": "*** a"}}


@pytest.mark.parametrize(
    ("code", "status"),
    [("server_error", 502), ("rate_limit_exceeded", 429), ("invalid_prompt", 400), (None, 502)],
)
def test_a_failed_response_is_the_provider_s_error(code, status):
    failed = {**NATIVE, "status": "failed", "output": [], "error": {"code": code, "message": "it broke"}}
    with pytest.raises(InferenceError, match="it broke") as caught:
        chat_answer_from_native(failed)
    with pytest.raises(InferenceError) as caught_in_stream:
        read([{"type": "response.failed", "response": failed}])
    assert caught.value.status == caught_in_stream.value.status == status
    assert caught.value.body == caught_in_stream.value.body
    assert caught.value.body["error"]["code"] == (code or "server_error")


@pytest.mark.parametrize("nested", [False, True])
def test_an_error_event_is_the_provider_s_error(nested):
    error = {"code": "rate_limit_exceeded", "message": "slow down", "param": "model"}
    event = {
        "type": "error",
        "sequence_number": 3,
        **({"error": {**error, "type": "requests"}} if nested else error),
    }
    with pytest.raises(InferenceError, match="slow down") as caught:
        read([event])
    assert caught.value.status == 429
    assert caught.value.body["error"]["param"] == "model"
    assert caught.value.body["error"]["type"] == ("requests" if nested else "rate_limit_error")


def test_unknown_and_malformed_events_are_passed_over():
    reader = ResponseReader()
    assert reader.event("response.web_search_call.searching", {"output_index": 0}) == []
    assert reader.event("response.output_item.added", {"output_index": 0, "item": None}) == []
    assert reader.event("response.function_call_arguments.delta", {"output_index": 5, "delta": "x"}) == []
    assert reader.event("response.output_text.delta", {}) == []


def test_an_event_without_a_name_is_known_by_its_type():
    event = {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"}
    assert ResponseReader().event("", event)[0]["choices"][0]["delta"] == {"content": "Hi"}


def test_the_delta_of_a_whole_message_numbers_its_calls():
    call = function_call("call_1", "f", "{}")
    assert delta_of_message({"content": "x", "tool_calls": [call]})["tool_calls"] == [{"index": 0, **call}]


def test_an_output_that_a_chat_cannot_say_is_repeated_from_the_record_as_it_was():
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "é", "queries": ["é"]},
    }
    cited = {
        "type": "url_citation",
        "start_index": 0,
        "end_index": 1,
        "title": "t",
        "url": "https://example.org",
    }
    said = {**MESSAGE, "content": [{**MESSAGE["content"][0], "annotations": [cited]}]}
    declined = {**MESSAGE, "id": "msg_2", "content": [{"type": "refusal", "refusal": "No."}]}
    output = [{**REASONING, "status": "completed"}, search, said, CALL, declined]
    answer = chat_answer_from_native({**NATIVE, "output": output})
    body = {**HELLO, "tools": [{"type": "web_search"}]}
    worded = orjson.loads(OpenAIResponses().answer(OpenAIResponses().request(orjson.dumps(body)), answer))
    assert checked_response(worded).output_text == " Hi "
    assert (worded["id"], worded["output"]) == ("resp_abc", output)
    events = checked_events(streamed({**body, "stream": True}, answer, []))
    assert events[-1]["response"] == {**worded, "tools": body["tools"]}
    assert [event["item"]["id"] for event in events if event["type"] == "response.output_item.done"] == [
        item["id"] for item in output
    ]
    assert assembled(read(events))["message"]["content"] == " Hi "


def test_what_a_chat_says_whole_is_kept_once():
    plain = {**MESSAGE, "content": [{"type": "output_text", "text": " Hi ", "annotations": []}]}
    for output in ([plain, CALL], [MESSAGE], []):
        assert BESIDE not in chat_answer_from_native({**NATIVE, "output": output})["choices"][0]["message"]


def test_a_stream_keeps_what_a_chat_cannot_say_beside():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    text = {"type": "response.output_text.delta", "output_index": 1, "delta": " Hi ", "logprobs": []}
    done = {"type": "response.completed", "response": {**NATIVE, "output": [search, MESSAGE]}}
    kept = [chunk["choices"][0]["delta"].get(BESIDE) for chunk in read([text, done]) if chunk["choices"]]
    assert [each for each in kept if each] == [{"output": [search, MESSAGE]}]


TEXTS = st.text(
    alphabet=st.one_of(st.sampled_from(' \n\t{}":\\é👋'), st.characters(codec="utf-8")), max_size=12
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "content": TEXTS.filter(bool),
        "reasoning_content": TEXTS.filter(bool),
        "refusal": TEXTS.filter(bool),
        "tool_calls": st.lists(
            st.builds(function_call, TEXTS.filter(bool), TEXTS.filter(bool), TEXTS), min_size=1, max_size=3
        ),
    },
).filter(bool)


@given(MESSAGES, st.sampled_from(["stop", "length"]))
def test_an_answer_survives_the_way_there_and_back(message, finish_reason):
    answer = canonical(message, finish_reason="tool_calls" if "tool_calls" in message else finish_reason)
    dialect = OpenAIResponses()
    native = orjson.loads(dialect.answer(dialect.request(orjson.dumps(HELLO)), answer))
    back = dialect.chat_answer(native)
    assert back["choices"] == answer["choices"]
    assert (back["model"], back["created"]) == (answer["model"], answer["created"])
    assert (
        back["usage"]["prompt_tokens_details"]["cached_tokens"]
        == USAGE["prompt_tokens_details"]["cached_tokens"]
    )
    chunks = chunked(answer, [delta_of_message(message)])
    events = events_in(streamed({**HELLO, "stream": True}, answer, chunks))
    received = StreamedAnswer()
    for chunk in read(events):
        received.add(chunk)
    assert received.answer() == back
