"""The official SDK, unmodified, against the dialect: what it sends is read, what it gets is worded, nothing between."""

import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import orjson
import pytest
from anthropic import beta_tool
from anthropic_exchange import DIALECT, HELLO, WEATHER, call, chat_answer, chunks_of
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agl.errors import InferenceError
from agl.proxy.dialects.anthropic_messages import AnthropicMessages
from agl.proxy.dialects.base import NativeDialect
from agl.proxy.refusal import CallRefusedError

TALK = {
    "model": "policy",
    "max_tokens": 64,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [{"role": "user", "content": "The weather in Köln?"}],
    "tools": [WEATHER],
}
SAID = chat_answer(
    {
        "content": "Let me\n look.",
        "tool_calls": [call("weather", '{"city": "Köln"}'), call("weather", "{}", "call_2")],
    },
    finish_reason="tool_calls",
)


class Server:
    """Answers with what ``reply`` makes of the canonical request, and keeps the requests."""

    def __init__(self, reply: Callable[[dict[str, Any]], dict[str, Any]] = lambda _: SAID) -> None:
        self.reply = reply
        self.requests: list[Any] = []

    def __call__(self, http: httpx2.Request) -> httpx2.Response:
        if http.url.path.endswith("/count_tokens"):
            self.requests.append(DIALECT.count_request(http.content))
            return _json(DIALECT.count_answer(17))
        try:
            request = DIALECT.request(http.content)
        except CallRefusedError as error:
            return _refusal(error)
        if request.native_only is not None:
            return _refusal(request.native_only)
        self.requests.append(request)
        answer = self.reply(request.chat)
        if not request.stream:
            return _json(DIALECT.answer(request, answer))
        writer = DIALECT.events(request)
        body = b"".join(writer.chunk(each) for each in chunks_of(answer, list)) + writer.end(answer)
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)

    def client(self) -> anthropic.Anthropic:
        http = httpx2.Client(transport=httpx2.MockTransport(self))
        return anthropic.Anthropic(base_url="http://proxy", api_key="k", http_client=http, max_retries=0)

    def async_client(self) -> anthropic.AsyncAnthropic:
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self))
        return anthropic.AsyncAnthropic(base_url="http://proxy", api_key="k", http_client=http, max_retries=0)


def _json(content: bytes, status: int = 200) -> httpx2.Response:
    return httpx2.Response(status, headers={"content-type": "application/json"}, content=content)


def _refusal(error: CallRefusedError) -> httpx2.Response:
    return _json(DIALECT.error_body(str(error), status=error.status, code=error.code), error.status)


def blocks(message: Any) -> list[dict[str, Any]]:
    return [block.to_dict() for block in message.content]


def test_it_is_a_native_dialect_with_a_name():
    dialect: NativeDialect = AnthropicMessages()
    assert dialect.name == "anthropic.messages"


def test_the_sync_client_gets_the_same_message_plain_streamed_and_raw():
    server = Server()
    plain = server.client().messages.create(**TALK)
    with server.client().messages.stream(**TALK) as stream:
        texts = list(stream.text_stream)
        streamed = stream.get_final_message()
    raw = list(server.client().messages.create(**TALK, stream=True))
    assert blocks(streamed) == blocks(plain)
    assert blocks(plain)[1:] == [
        {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Köln"}},
        {"type": "tool_use", "id": "call_2", "name": "weather", "input": {}},
    ]
    assert "".join(texts) == "Let me\n look." == plain.content[0].text
    assert (plain.stop_reason, streamed.stop_reason) == ("tool_use", "tool_use")
    assert plain.usage.input_tokens == streamed.usage.input_tokens == 11
    assert (raw[0].type, raw[-1].type) == ("message_start", "message_stop")
    assert [request.stream for request in server.requests] == [False, True, True]
    assert all(request.chat == server.requests[0].chat for request in server.requests)
    assert server.requests[0].chat["messages"][0] == {"role": "system", "content": "Be brief."}


async def test_the_async_client_gets_the_same_message_plain_streamed_and_raw():
    server = Server()
    plain = await server.async_client().messages.create(**TALK)
    async with server.async_client().messages.stream(**TALK) as stream:
        streamed = await stream.get_final_message()
    raw = [event async for event in await server.async_client().messages.create(**TALK, stream=True)]
    assert blocks(streamed) == blocks(plain)
    assert (raw[0].type, raw[-1].type) == ("message_start", "message_stop")


def test_what_the_sdk_hands_back_is_the_turn_that_was_answered():
    server = Server()
    message = server.client().messages.create(**TALK)
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "rain"}
        for block in message.content
        if block.type == "tool_use"
    ]
    turns = [*TALK["messages"], message.to_param(), {"role": "user", "content": results}]
    server.client().messages.create(**{**TALK, "messages": turns})
    said = SAID["choices"][0]["message"]
    assert server.requests[1].chat["messages"][2:] == [
        {"role": "assistant", "content": said["content"], "tool_calls": said["tool_calls"]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        {"role": "tool", "tool_call_id": "call_2", "content": "rain"},
    ]


@beta_tool
def weather(city: str) -> str:
    """The weather.

    Args:
        city: where
    """
    return f"rain in {city}"


def weather_twice(chat: dict[str, Any]) -> dict[str, Any]:
    """Asks for the weather of two cities, one after the other, then repeats what it was told."""
    results = [message["content"] for message in chat["messages"] if message["role"] == "tool"]
    if len(results) == 2:
        return chat_answer({"content": ", ".join(results)})
    city = ["Köln", "Bonn"][len(results)]
    asked = call("weather", f'{{"city": "{city}"}}', f"call_{len(results)}")
    return chat_answer({"tool_calls": [asked]}, finish_reason="tool_calls")


ASKED = {name: TALK[name] for name in ("model", "max_tokens", "messages")}


@pytest.mark.parametrize("stream", [False, True])
def test_the_sdks_own_tool_loop_runs_to_its_end_with_the_whole_conversation(stream):
    server = Server(weather_twice)
    runner = server.client().beta.messages.tool_runner(**ASKED, tools=[weather], stream=stream)
    assert runner.until_done().content[0].text == "rain in Köln, rain in Bonn"
    roles = [[message["role"] for message in request.chat["messages"]] for request in server.requests]
    turn = ["assistant", "tool"]
    assert roles == [["user"], ["user", *turn], ["user", *turn, *turn]]


def test_a_thread_of_the_sdk_goes_on_though_the_proxy_holds_none():
    server = Server(lambda chat: chat_answer({"content": str(len(chat["messages"]))}))
    thread = server.client().beta.messages.thread(model="policy", max_tokens=64, system="Count.")
    for expected in ("2", "4", "6"):
        assert thread.send({"role": "user", "content": "next"}).content[0].text == expected


def test_structured_output_is_asked_for_and_parsed():
    class City(BaseModel):
        name: str

    server = Server(lambda _: chat_answer({"content": '{"name": "Köln"}'}))
    parsed = server.client().messages.parse(**HELLO, output_format=City).parsed_output
    assert parsed == City(name="Köln")
    form = server.requests[0].chat["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["schema"]["required"] == ["name"]


def test_thinking_is_asked_for_and_shown():
    server = Server(lambda _: chat_answer({"content": "4", "reasoning_content": "2 and 2"}))
    with server.client().messages.stream(**HELLO, thinking={"type": "adaptive"}) as stream:
        message = stream.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].thinking == "2 and 2"


def test_a_count_is_asked_for_and_answered():
    server = Server()
    asked = {name: TALK[name] for name in ("model", "system", "messages", "tools")}
    assert server.client().messages.count_tokens(**asked).input_tokens == 17
    counted = server.requests[0]
    server.client().messages.create(**TALK)
    assert {**counted.chat, "max_tokens": 64} == server.requests[1].chat
    assert (counted.stream, counted.native["model"]) == (False, "policy")


def test_a_wrong_request_raises_in_the_client_with_the_place():
    with pytest.raises(anthropic.BadRequestError, match="messages\\.0\\.content") as caught:
        Server().client().messages.create(
            model="policy", max_tokens=8, messages=[{"role": "user", "content": 1}]
        )
    assert caught.value.error_code == "invalid_value"


def test_the_body_is_kept_for_a_native_upstream():
    body = {**TALK, "service_tier": "auto", "tools": [{"type": "web_search_20250305", "name": "web_search"}]}
    request = DIALECT.request(orjson.dumps(body))
    assert request.native == body
    assert request.native_only is not None


def test_a_native_answer_and_stream_are_read_for_the_record():
    native = json.loads(DIALECT.answer(DIALECT.request(orjson.dumps(TALK)), SAID))
    assert DIALECT.chat_answer(native)["choices"][0]["message"] == SAID["choices"][0]["message"]
    chunks = DIALECT.reader().event(
        "message_start", {"type": "message_start", "message": {**native, "content": []}}
    )
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}


REQUEST_WORDS = (
    *(
        "model",
        "messages",
        "role",
        "content",
        "type",
        "text",
        "source",
        "input",
        "name",
        "system",
        "tools",
        "id",
    ),
    *("tool_choice", "thinking", "metadata", "max_tokens", "stop_sequences", "output_config", "input_schema"),
)
ANSWER_WORDS = (
    *(
        "content",
        "refusal",
        "reasoning",
        "reasoning_content",
        "tool_calls",
        "function",
        "arguments",
        "name",
        "id",
    ),
    *("index", "anthropic", "stop_reason", "finish_reason", "delta", "message", "prompt_tokens_details"),
)
VALUES = (
    *(
        "user",
        "assistant",
        "text",
        "image",
        "document",
        "tool_use",
        "tool_result",
        "thinking",
        "search_result",
    ),
    *("base64", "content", "policy", "tool", "enabled", "x", "", 0, 1, -1, 1.5, True, None),
)
values = st.sampled_from(VALUES)


def anything(words):
    """Any JSON with these words as names."""
    names = st.sampled_from(words)
    return st.recursive(
        values,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
        max_leaves=12,
    )


def anything_named(words):
    return st.dictionaries(st.sampled_from(words), anything(words), max_size=5)


odd_blocks = st.tuples(anything_named(REQUEST_WORDS), values).map(
    lambda block: {"source": {}, **block[0], "type": block[1]}
)
odd_events = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["message_start", "content_block_start", "content_block_delta", "message_delta"]
        )
    },
    optional={"index": values}
    | {name: anything(ANSWER_WORDS) for name in ("content_block", "delta", "message", "usage")},
)


@given(anything_named(REQUEST_WORDS), st.lists(odd_blocks, max_size=3))
def test_any_body_is_read_or_refused_with_a_reason(fields, content):
    body = {**HELLO, "messages": [{"role": "user", "content": content}], **fields}
    for read in (DIALECT.request, DIALECT.count_request):
        status = None
        try:
            orjson.dumps(read(orjson.dumps(body)).chat)
        except CallRefusedError as error:
            status = error.status
        assert status in (None, 400)


@given(
    anything_named(ANSWER_WORDS), st.lists(anything_named(ANSWER_WORDS), max_size=4), anything(ANSWER_WORDS)
)
def test_whatever_an_upstream_says_becomes_an_answer_and_a_stream(message, deltas, usage):
    request = DIALECT.request(orjson.dumps({**TALK, "thinking": {"type": "adaptive"}}))
    answer = {"id": usage, "choices": [{"message": message, **message}], "usage": usage}
    assert json.loads(DIALECT.answer(request, answer))["type"] == "message"
    writer = DIALECT.events(request)
    stream = b"".join(
        writer.chunk({"choices": [{"delta": delta, **delta}], "usage": usage}) for delta in deltas
    )
    stream += writer.end(answer)
    assert stream.endswith(b'data: {"type":"message_stop"}\n\n')


@given(st.lists(odd_events, max_size=5), anything_named(ANSWER_WORDS))
def test_whatever_a_provider_says_is_read_or_its_fault(events, message):
    assert DIALECT.chat_answer(message)["object"] == "chat.completion"
    reader = DIALECT.reader()
    status = 502
    for event in events:
        try:
            reader.event(event["type"], event)
        except InferenceError as error:
            status = error.status
    assert status == 502
