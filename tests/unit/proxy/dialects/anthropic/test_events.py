from typing import Any

import anthropic
import orjson
import pytest
from anthropic_exchange import (
    DIALECT,
    WEATHER,
    call,
    chat_answer,
    chunk,
    chunks_of,
    client_of,
    events_of,
    final_message,
    read,
    streamed,
    valid,
)
from hypothesis import given
from hypothesis import strategies as st

THINKING = {"thinking": {"type": "enabled", "budget_tokens": 2048}}
PING = b'event: ping\ndata: {"type":"ping"}\n\n'


def whole(text):
    return [text] if text else []


def without_nulls(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if value is not None}


def kinds(stream: bytes) -> list[str]:
    return [event["type"] for event in events_of(stream)]


values = st.recursive(st.none() | st.integers(-(2**63), 2**63) | st.text(), st.lists, max_leaves=5)
json_texts = st.dictionaries(st.text(), values, max_size=3).map(lambda value: orjson.dumps(value).decode())
calls = st.builds(
    call, st.sampled_from(["weather", "now"]), json_texts | st.text(), st.none() | st.just("call_9")
)
answers = st.builds(
    lambda said, finish: chat_answer(
        {**said, "tool_calls": said["tool_calls"] or None}, finish_reason=finish
    ),
    st.fixed_dictionaries(
        {
            "content": st.none() | st.text() | st.sampled_from([" ", "\n\n", "  x", "é\u2028\U0001f600"]),
            "reasoning_content": st.none() | st.text(),
            "tool_calls": st.lists(calls, max_size=3),
        }
    ),
    st.sampled_from(["stop", "length", "tool_calls"]),
)


@given(st.data(), answers, st.sampled_from([{}, THINKING]))
def test_a_stream_is_the_plain_answer_however_it_is_cut(data, answer, fields):
    def cut(text):
        borders = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
        return [text[a:b] for a, b in zip([0, *borders], [*borders, len(text)], strict=True)]

    request = read(tools=[WEATHER], **fields)
    plain = valid(DIALECT.answer(request, answer))
    together = final_message(streamed(request, chunks_of(answer, cut), answer))
    assert without_nulls(together) == without_nulls(plain)


@given(answers)
def test_an_answer_that_never_came_in_chunks_is_streamed_by_its_end(answer):
    request = read(tools=[WEATHER], **THINKING)
    stream = DIALECT.events(request).end(answer)
    events_of(stream)
    assert without_nulls(final_message(stream)) == without_nulls(valid(DIALECT.answer(request, answer)))


def test_the_last_events_come_from_the_end_alone():
    answer = chat_answer({"content": "4"})
    writer = DIALECT.events(read())
    before = b"".join(writer.chunk(each) for each in chunks_of(answer, whole))
    assert kinds(before) == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    ]
    last = events_of(writer.end(answer))
    assert [event["type"] for event in last] == ["message_delta", "message_stop"]
    assert last[0]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert last[0]["usage"]["input_tokens"] == 11
    assert last[0]["usage"]["output_tokens"] == 5


def test_a_text_is_passed_on_as_it_comes():
    writer = DIALECT.events(read())
    for piece in (" ", "\n", "x"):
        last = events_of(writer.chunk(chunk({"content": piece})))[-1]
        assert last["delta"] == {"type": "text_delta", "text": piece}


def test_the_beginning_knows_the_prompts_tokens_when_the_engine_told_its_ids():
    started = events_of(
        DIALECT.events(read()).chunk(chunk({"role": "assistant"}, prompt_token_ids=[7, 8, 9]))
    )
    message = started[0]["message"]
    assert (message["id"], message["model"], message["content"]) == ("msg_7", "policy-1", [])
    assert (message["usage"]["input_tokens"], message["usage"]["output_tokens"]) == (3, 0)
    assert message["stop_reason"] is None


def test_a_tools_input_comes_whole_and_pings_tell_that_it_is_coming():
    answer = chat_answer({"tool_calls": [call("weather", '{"city": "Köln"}')]}, finish_reason="tool_calls")
    writer = DIALECT.events(read(tools=[WEATHER]))
    written = [
        writer.chunk(each) for each in chunks_of(answer, lambda text: [text[:7], text[7:]] if text else [])
    ]
    assert written[1:4] == [PING, PING, PING]
    start, delta, stop = events_of(written[4])
    assert start["content_block"] == {"type": "tool_use", "id": "call_1", "name": "weather", "input": {}}
    assert delta["delta"] == {"type": "input_json_delta", "partial_json": '{"city": "Köln"}'}
    assert stop == {"type": "content_block_stop", "index": 0}
    assert written[5] == b""


def test_a_tool_with_eager_streaming_gets_its_input_as_it_comes():
    tool = {**WEATHER, "eager_input_streaming": True}
    answer = chat_answer(
        {"content": "So:", "tool_calls": [call("weather", '{"city": "K'), call("weather", "{}", "b")]}
    )
    stream = streamed(read(tools=[tool]), chunks_of(answer, list), answer)
    pieces = [
        (event["index"], event["delta"]["partial_json"])
        for event in events_of(stream)
        if event["type"] == "content_block_delta" and "partial_json" in event["delta"]
    ]
    assert pieces == [(1, piece) for piece in '{"city": "K'] + [(2, "{"), (2, "}")]
    assert final_message(stream)["content"][2] == {
        "type": "tool_use",
        "id": "b",
        "name": "weather",
        "input": {},
    }


def test_calls_that_come_interleaved_are_kept_apart():
    def piece(index, arguments, **head):
        return chunk({"tool_calls": [{"index": index, **head, "function": {"arguments": arguments}}]})

    chunks = [
        chunk(
            {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "weather", "arguments": '{"ci'}}]}
        ),
        chunk({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "now", "arguments": "{"}}]}),
        piece(0, 'ty": "Bonn"}'),
        chunk({"content": " tail"}),
        piece(1, "}"),
        chunk({}, finish_reason="tool_calls"),
    ]
    told = [call("weather", '{"city": "Bonn"}', "a"), call("now", "{}", "b")]
    answer = chat_answer({"content": " tail", "tool_calls": told}, finish_reason="tool_calls")
    for tools in ([WEATHER], [{**WEATHER, "eager_input_streaming": True}]):
        request = read(tools=tools)
        content = final_message(streamed(request, chunks, answer))["content"]
        blocks = {block.get("id", "text"): block for block in content}
        assert blocks["text"]["text"] == " tail"
        assert (blocks["a"]["input"], blocks["b"]["input"]) == ({"city": "Bonn"}, {})


def test_thinking_not_asked_for_is_only_a_sign_of_life():
    writer = DIALECT.events(read())
    writer.chunk(chunk({"role": "assistant"}))
    assert writer.chunk(chunk({"reasoning_content": "hm"})) == PING
    assert writer.chunk(chunk({"role": "assistant", "content": ""})) == b""


def test_thinking_with_its_text_left_out_is_an_empty_block():
    answer = chat_answer({"content": "4", "reasoning_content": "2 and 2"})
    stream = streamed(
        read(thinking={"type": "adaptive", "display": "omitted"}), chunks_of(answer, list), answer
    )
    assert b"2 and 2" not in stream
    assert [block["type"] for block in final_message(stream)["content"]] == ["thinking", "text"]
    assert kinds(stream).count("content_block_start") == 2


def test_a_second_choice_is_not_mixed_in():
    other = chunk({"content": "other"})
    other["choices"][0]["index"] = 1
    answer = chat_answer({"content": "4"})
    assert b"other" not in streamed(read(), [other, *chunks_of(answer, whole)], answer)


def test_a_stream_that_says_no_finish_is_ended_whole():
    answer = chat_answer({"content": "4", "tool_calls": [call("now", "{}")]}, finish_reason="length")
    chunks = [each for each in chunks_of(answer, whole) if each["choices"] and each["choices"][0]["delta"]]
    content = final_message(streamed(read(), chunks, answer))["content"]
    assert [block["type"] for block in content] == ["text", "tool_use"]


def test_the_providers_own_blocks_are_streamed_again_as_they_were():
    blocks = [
        {"type": "thinking", "thinking": " hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "ZGF0YQ=="},
        {"type": "text", "text": "a "},
        {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {"zone": "CET"}},
    ]
    answer = chat_answer({"content": "a ", "anthropic": {"content": blocks}}, finish_reason="tool_calls")
    stream = DIALECT.events(read()).end(answer)
    events_of(stream)
    content = final_message(stream)["content"]
    assert [without_nulls(block) for block in content] == blocks


def test_a_failure_in_mid_stream_raises_in_the_client():
    writer = DIALECT.events(read())
    stream = writer.chunk(chunk({"content": "4"}))
    stream += writer.error("the upstream went away", status=502, code="upstream_gone")
    told = client_of(stream, stream=True).messages.create(**read().native, stream=True)
    with pytest.raises(anthropic.APIStatusError) as caught:
        list(told)
    assert caught.value.api_message == "the upstream went away"
    assert (caught.value.type, caught.value.error_code) == ("api_error", "upstream_gone")
