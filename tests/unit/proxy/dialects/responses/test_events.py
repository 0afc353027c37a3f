import itertools
from typing import Any

import openai
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from responses_exchange import (
    HELLO,
    ScriptedUpstream,
    canonical,
    checked_events,
    checked_response,
    chunked,
    events_in,
    function_call,
    streamed,
)

from agl.proxy.dialects.openai_responses import OpenAIResponses

INCLUDE = {"include": ["message.output_text.logprobs"]}
WITH_LOGPROBS = {**HELLO, "stream": True, **INCLUDE}
STREAM = {**HELLO, "stream": True}


def entry(token):
    return {"token": token, "bytes": list(token.encode()), "logprob": -0.5, "top_logprobs": []}


def plain(body, answer):
    dialect = OpenAIResponses()
    return orjson.loads(dialect.answer(dialect.request(orjson.dumps(body)), answer))


def call_delta(index, arguments="", *, call_id=None, name=None):
    head = {} if call_id is None else {"id": call_id, "type": "function"}
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, **head, "function": function}]}


def test_a_text_has_openai_s_events_in_openai_s_order():
    answer = canonical({"content": "Hi there"})
    events = checked_events(
        streamed(STREAM, answer, chunked(answer, [{"content": "Hi"}, {"content": " there"}]))
    )
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(10))
    assert [event["delta"] for event in events[4:6]] == ["Hi", " there"]
    assert (events[0]["response"]["status"], events[0]["response"]["output"]) == ("in_progress", [])
    assert (events[2]["item"]["status"], events[2]["item"]["content"]) == ("in_progress", [])
    assert events[-1]["response"] == plain(STREAM, answer)


def test_reasoning_text_and_calls_follow_one_another():
    calls = [function_call("call_1", "weather", '{"city":"Oslo"}'), function_call("call_2", "weather", "{}")]
    message = {"reasoning_content": "Hm.", "content": "I look.", "tool_calls": calls}
    answer = canonical(message, finish_reason="tool_calls")
    deltas = [
        {"reasoning": "Hm."},
        {"content": "I look."},
        call_delta(0, call_id="call_1", name="weather"),
        call_delta(0, '{"city":'),
        call_delta(0, '"Oslo"}'),
        call_delta(1, "{}", call_id="call_2", name="weather"),
    ]
    events = checked_events(streamed(STREAM, answer, chunked(answer, deltas)))
    assert [
        (event["type"].removeprefix("response."), event.get("output_index")) for event in events[2:-1]
    ] == [
        ("output_item.added", 0),
        ("content_part.added", 0),
        ("reasoning_text.delta", 0),
        ("reasoning_text.done", 0),
        ("content_part.done", 0),
        ("output_item.done", 0),
        ("output_item.added", 1),
        ("content_part.added", 1),
        ("output_text.delta", 1),
        ("output_text.done", 1),
        ("content_part.done", 1),
        ("output_item.done", 1),
        ("output_item.added", 2),
        ("function_call_arguments.delta", 2),
        ("function_call_arguments.delta", 2),
        ("output_item.added", 3),
        ("function_call_arguments.delta", 3),
        ("function_call_arguments.done", 2),
        ("output_item.done", 2),
        ("function_call_arguments.done", 3),
        ("output_item.done", 3),
    ]
    assert events[-1]["response"] == plain(STREAM, answer)


def test_interleaved_arguments_of_parallel_calls_stay_apart():
    calls = [function_call("call_1", "a", '{"x":1}'), function_call("call_2", "b", '{"y":2}')]
    answer = canonical({"tool_calls": calls}, finish_reason="tool_calls")
    deltas = [
        call_delta(0, '{"x"', call_id="call_1", name="a"),
        call_delta(1, '{"y"', call_id="call_2", name="b"),
        call_delta(0, ":1}"),
        call_delta(1, ":2}"),
    ]
    events = checked_events(streamed(STREAM, answer, chunked(answer, deltas)))
    assert [item["arguments"] for item in events[-1]["response"]["output"]] == ['{"x":1}', '{"y":2}']


def test_calls_without_an_index_and_names_in_pieces_are_understood():
    calls = [function_call("call_1", "weather", '{"x":1}'), function_call("call_2", "weather", "{}")]
    answer = canonical({"tool_calls": calls}, finish_reason="tool_calls")
    deltas = [
        call_delta(None, '{"x"', call_id="call_1", name="weath"),
        call_delta(None, ":1}", name="er"),
        call_delta(None, "{}", call_id="call_2", name="weather"),
        call_delta(None, "", name="weather"),
    ]
    events = checked_events(streamed(STREAM, answer, chunked(answer, deltas)))
    assert events[-1]["response"] == plain(STREAM, answer)


def test_text_behind_a_call_is_a_message_of_its_own():
    answer = canonical({"content": "ab", "tool_calls": [function_call("call_1", "f", "{}")]})
    deltas = [{"content": "a"}, call_delta(0, "{}", call_id="call_1", name="f"), {"content": "b"}]
    output = checked_events(streamed(STREAM, answer, chunked(answer, deltas)))[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["message", "function_call", "message"]
    assert [item["content"][0]["text"] for item in (output[0], output[2])] == ["a", "b"]


def test_a_refusal_is_streamed_as_one():
    answer = canonical({"refusal": "I will not."})
    events = checked_events(
        streamed(STREAM, answer, chunked(answer, [{"refusal": "I will"}, {"refusal": " not."}]))
    )
    assert [event["delta"] for event in events if event["type"] == "response.refusal.delta"] == [
        "I will",
        " not.",
    ]
    assert events[-1]["response"] == plain(STREAM, answer)


def test_the_first_event_of_the_end_is_not_sent_before_the_end():
    dialect = OpenAIResponses()
    answer = canonical({"content": "Hi"})
    writer = dialect.events(dialect.request(orjson.dumps(STREAM)))
    before = b"".join(map(writer.chunk, chunked(answer, [{"content": "Hi"}])))
    assert [event["type"] for event in events_in(before)][-1] == "response.output_text.delta"
    terminal = ("response.completed", "response.incomplete", "response.failed")
    ends = [event["type"] in terminal for event in events_in(writer.end(answer))]
    assert ends == [False, False, False, True]


def test_a_cut_answer_ends_as_incomplete():
    answer = canonical({"content": "I lo"}, finish_reason="length")
    events = checked_events(streamed(STREAM, answer, chunked(answer, [{"content": "I lo"}])))
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"] == plain(STREAM, answer)
    assert events[-2]["item"]["status"] == "incomplete"


@pytest.mark.parametrize("message", [{"content": None}, {"content": "all at once"}, {"refusal": "no"}])
def test_an_answer_without_chunks_is_streamed_whole(message):
    answer = canonical(message)
    for chunks in ([], chunked(answer, [])[:1]):
        assert checked_events(streamed(STREAM, answer, chunks))[-1]["response"] == plain(STREAM, answer)


def test_logprobs_go_with_the_text_of_their_tokens():
    tokens = ["Hi", " th", "ere"]
    answer = canonical({"content": "Hi there"}, logprobs=[*map(entry, tokens), entry("")])
    deltas: list[dict[str, Any]] = [
        {"content": "Hi", "logprobs": [entry("Hi")]},
        {"logprobs": [entry(" th")]},
    ]
    deltas += [{"content": " there", "logprobs": [entry("ere")]}, {"logprobs": [entry("")]}]
    events = checked_events(streamed(WITH_LOGPROBS, answer, chunked(answer, deltas)))
    shown = [
        [e["token"] for e in event["logprobs"]] for event in events if event["type"].endswith("text.delta")
    ]
    assert shown == [["Hi"], [" th", "ere"]]
    assert events[-1]["response"] == plain(WITH_LOGPROBS, answer)
    quiet = events_in(streamed(STREAM, answer, chunked(answer, deltas)))
    assert all(event["logprobs"] == [] for event in quiet if event["type"].endswith("text.delta"))


def test_the_logprobs_of_a_call_are_not_those_of_the_text():
    answer = canonical({"content": "a", "tool_calls": [function_call("call_1", "f", "{}")]})
    deltas: list[dict[str, Any]] = [{"content": "a", "logprobs": [entry("a")]}]
    deltas.append({**call_delta(0, "{}", call_id="call_1", name="f"), "logprobs": [entry("{}")]})
    output = checked_events(streamed(WITH_LOGPROBS, answer, chunked(answer, deltas)))[-1]["response"][
        "output"
    ]
    assert [e["token"] for e in output[0]["content"][0]["logprobs"]] == ["a"]


def test_a_failure_in_mid_stream_is_an_error_and_a_failed_response():
    dialect = OpenAIResponses()
    answer = canonical({"content": "Hi"})
    writer = dialect.events(dialect.request(orjson.dumps(STREAM)))
    begun = b"".join(map(writer.chunk, chunked(answer, [{"content": "Hi"}])[:2]))
    body = {"error": {"message": "the engine died", "type": "server_error", "param": None, "code": "dead"}}
    events = checked_events(begun + writer.error("upstream failed", status=502, code="502", body=body))
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert (events[-2]["code"], events[-2]["message"], events[-2]["error"]) == (
        "dead",
        "the engine died",
        body["error"],
    )
    failed = checked_response(events[-1]["response"])
    assert (failed.status, failed.output_text) == ("failed", "Hi")
    assert failed.error is not None
    assert (failed.error.code, failed.error.message) == ("server_error", "the engine died")


def test_a_failure_before_the_first_chunk_is_an_error_only():
    dialect = OpenAIResponses()
    writer = dialect.events(dialect.request(orjson.dumps(STREAM)))
    (event,) = checked_events(writer.error("too many", status=429, code="budget_exceeded"))
    assert (event["type"], event["code"], event["message"]) == ("error", "budget_exceeded", "too many")


def test_openai_s_client_raises_at_a_failure_in_mid_stream():
    import httpx

    def failing(request: httpx.Request) -> httpx.Response:
        dialect = OpenAIResponses()
        writer = dialect.events(dialect.request(request.content))
        body = writer.chunk(chunked(canonical({"content": "Hi"}), [])[0])
        body += writer.error("the engine died", status=502, code="upstream_failed")
        return httpx.Response(200, content=body, headers={"content-type": "text/event-stream"})

    http = httpx.Client(transport=httpx.MockTransport(failing))
    client = openai.OpenAI(api_key="none", base_url="http://proxy/v1", http_client=http, max_retries=0)
    with pytest.raises(openai.APIError, match="the engine died"):
        list(client.responses.create(model="policy", input="hello", stream=True))


# Chunk borders


TEXTS = st.text(
    alphabet=st.one_of(st.sampled_from(' \n\t{}":\\é👋'), st.characters(codec="utf-8")), max_size=12
)


@st.composite
def answers(draw):
    message: dict[str, Any] = {}
    for name in ("reasoning_content", "content"):
        text = draw(st.none() | TEXTS)
        if text:
            message[name] = text
    names = draw(st.lists(TEXTS.filter(bool), max_size=3))
    if names:
        message["tool_calls"] = [
            function_call(f"call_{i}", name, draw(TEXTS)) for i, name in enumerate(names)
        ]
    return canonical(
        message, finish_reason=draw(st.sampled_from(["stop", "tool_calls", "length", "content_filter"]))
    )


def pieces(draw, text):
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]


def deltas_of(draw, message):
    deltas: list[dict[str, Any]] = []
    for name in ("reasoning_content", "content"):
        deltas += [{name: piece} for piece in pieces(draw, message.get(name) or "")]
    for index, call in enumerate(message.get("tool_calls") or []):
        first, *rest = pieces(draw, call["function"]["arguments"])
        deltas.append(call_delta(index, first, call_id=call["id"], name=call["function"]["name"]))
        deltas += [call_delta(index, piece) for piece in rest]
    return deltas


@given(answers(), st.data())
def test_any_split_of_a_stream_gives_the_same_response(answer, data):
    deltas = deltas_of(data.draw, answer["choices"][0]["message"])
    events = checked_events(streamed(STREAM, answer, chunked(answer, deltas)))
    assert events[-1]["response"] == plain(STREAM, answer)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@given(answers(), st.data())
def test_openai_s_accumulator_sees_what_the_final_response_says(answer, data):
    chunks = chunked(answer, deltas_of(data.draw, answer["choices"][0]["message"]))
    client = ScriptedUpstream(answer, chunks=chunks).client()
    texts: dict[int, str] = {}
    arguments: dict[int, str] = {}
    with client.responses.stream(model="policy", input="hello") as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                texts[event.output_index] = event.snapshot
            elif event.type == "response.function_call_arguments.delta":
                arguments[event.output_index] = event.snapshot
            elif event.type in ("response.completed", "response.incomplete"):
                final = event.response
    message = answer["choices"][0]["message"]
    assert final.output_text == (message["content"] or "")
    assert "".join(texts.values()) == (message["content"] or "")
    calls = [item for item in final.output if item.type == "function_call"]
    assert [call.arguments for call in calls] == [
        c["function"]["arguments"] for c in message.get("tool_calls", [])
    ]
    assert list(arguments.values()) == [call.arguments for call in calls if call.arguments]
