"""Calls in a provider's own format are passed through; the record reads them canonically."""

from __future__ import annotations

import httpx
import orjson
import pytest

from agl.proxy.dialects.anthropic_messages import AnthropicMessages
from agl.proxy.dialects.openai_chat import OpenAIChat
from agl.proxy.dialects.openai_responses import OpenAIResponses
from agl.proxy.refusal import CallRefusedError
from agl.proxy.upstream import NATIVE, CallContext
from agl.proxy.upstreams.base import UpstreamError
from agl.proxy.upstreams.native import ANTHROPIC, RESPONSES, NativeServer

BODY = {
    "model": "claude",
    "max_tokens": 50,
    "messages": [{"role": "user", "content": "hello"}],
    "tools": [{"type": "web_search_20250305", "name": "web_search"}],
    "metadata": {"user_id": "u"},
}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [{"type": "text", "text": "hi", "citations": None}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 2},
}
EVENTS = [
    ("message_start", {"message": {**MESSAGE, "content": [], "stop_reason": None}}),
    ("ping", {}),
    ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
    ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
    ("content_block_stop", {"index": 0}),
    (
        "message_delta",
        {"delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 2}},
    ),
    ("message_stop", {}),
]
CHAT = {"model": "claude", "messages": []}


def context(**own):
    return CallContext(**{"dialect": AnthropicMessages(), "native": BODY} | own)


def framed(name, data):
    return f"event: {name}\ndata: ".encode() + orjson.dumps({"type": name, **data}) + b"\n\n"


@pytest.fixture
def server(http):
    return NativeServer(http, ANTHROPIC, model=None)


async def test_the_body_goes_on_as_it_came_and_the_answer_comes_back_as_it_came(server, model_server):
    sent = orjson.dumps(MESSAGE)
    model_server.answers = [httpx.Response(200, content=sent)]
    answer = await server.complete(CHAT, context())
    assert answer[NATIVE] == sent
    assert answer["choices"][0]["message"]["content"] == "hi"
    assert answer["usage"]["total_tokens"] == 5
    assert model_server.bodies == [BODY]
    assert model_server.requests[0].url.path == "/v1/messages"


async def test_only_the_model_and_what_is_forced_are_changed(http, model_server):
    model_server.answers = [httpx.Response(200, json=MESSAGE)]
    server = NativeServer(http, ANTHROPIC, model="claude-sonnet-5")
    forced = {"model": "claude", "temperature": 0.5, "max_completion_tokens": 9, "stop": "END", "seed": 3}
    await server.complete(CHAT, context(forced=forced))
    changed = {"model": "claude-sonnet-5", "temperature": 0.5, "max_tokens": 9, "stop_sequences": ["END"]}
    assert model_server.bodies == [BODY | changed]


async def test_a_default_that_is_forced_is_not_said_since_newer_models_refuse_to_hear_it(
    server, model_server
):
    model_server.answers = [httpx.Response(200, json=MESSAGE)]
    native = {**BODY, "temperature": 0.3, "top_p": 0.5}
    await server.complete(CHAT, context(native=native, forced={"temperature": 1.0, "top_p": 1.0}))
    assert model_server.bodies == [BODY]


async def test_what_is_forced_and_cannot_be_said_is_refused_by_name(server, model_server):
    with pytest.raises(CallRefusedError, match="min_p") as caught:
        await server.complete(CHAT, context(forced={"min_p": 0.1}))
    assert caught.value.status == 400
    assert not model_server.requests


async def test_the_clients_version_and_betas_are_passed_on_and_its_key_is_not(server, model_server):
    model_server.answers = [httpx.Response(200, json=MESSAGE)]
    headers = {
        "anthropic-version": "2099-01-01",
        "anthropic-beta": "b1",
        "x-api-key": "agents",
        "cookie": "c",
    }
    await server.complete(CHAT, context(headers=headers))
    await server.complete(CHAT, context())
    first, second = (request.headers for request in model_server.requests)
    assert (first["anthropic-version"], first["anthropic-beta"]) == ("2099-01-01", "b1")
    assert "x-api-key" not in first
    assert "cookie" not in first
    assert second["anthropic-version"] == "2023-06-01"


async def test_a_stream_passes_every_event_and_says_it_canonically(server, model_server):
    events = [framed(name, data) for name, data in EVENTS]
    model_server.answers = [model_server.stream(*events)]
    chunks = [chunk async for chunk in server.stream(CHAT, context())]
    passed = [chunk[NATIVE] for chunk in chunks]
    assert [event.data for event in passed if event.data] == events
    assert [event.last for event in passed if event.data] == [False] * 6 + [True]
    said = [choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"]]
    assert "".join(text or "" for text in said) == "hi"
    assert chunks[-1]["usage"]["total_tokens"] == 5
    assert model_server.bodies == [{**BODY, "stream": True}]


async def test_a_failure_told_in_a_stream_or_an_answer_does_not_repeat_the_key(http, server, model_server):
    told = {"error": {"type": "authentication_error", "message": "no key s3cret"}}
    model_server.answers = [model_server.stream(framed("error", told))]
    with pytest.raises(UpstreamError, match=r"no key \*\*\*") as caught:
        [chunk async for chunk in server.stream(CHAT, context())]
    assert caught.value.body == {"type": "error", "error": {**told["error"], "message": "no key ***"}}
    failed = {"object": "response", "status": "failed", "error": {"code": "x", "message": "no key s3cret"}}
    model_server.answers = [httpx.Response(200, json=failed)]
    with pytest.raises(UpstreamError, match=r"no key \*\*\*") as caught:
        await NativeServer(http, RESPONSES, model=None).complete(CHAT, context(dialect=OpenAIResponses()))
    assert "s3cret" not in str(caught.value.body)


async def test_a_stream_without_its_last_event_is_an_error(server, model_server):
    model_server.answers = [model_server.stream(*(framed(name, data) for name, data in EVENTS[:-1]))]
    with pytest.raises(UpstreamError, match="before the end"):
        [chunk async for chunk in server.stream(CHAT, context())]


@pytest.mark.parametrize(
    "garbage", [b"data: x\n\n", framed("content_block_delta", {"index": 7}), framed("message_start", {})]
)
async def test_events_that_are_none_are_a_502(server, model_server, garbage):
    model_server.answers = [model_server.stream(garbage)]
    with pytest.raises(UpstreamError) as caught:
        [chunk async for chunk in server.stream(CHAT, context())]
    assert caught.value.status == 502


async def test_an_answer_that_is_none_is_a_502(server, model_server):
    model_server.answers = [httpx.Response(200, json={"content": []})]
    with pytest.raises(UpstreamError, match=r"no anthropic\.messages"):
        await server.complete(CHAT, context())


async def test_a_refusal_keeps_the_providers_status_and_body(server, model_server):
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    model_server.answers = [httpx.Response(529, json=body)]
    with pytest.raises(UpstreamError) as caught:
        await server.complete(CHAT, context())
    assert (caught.value.status, caught.value.body, caught.value.retry) == (529, body, True)


async def test_responses_are_passed_through_likewise(http, model_server):
    response = {"id": "resp_1", "object": "response", "model": "gpt", "status": "completed", "output": []}
    last = {"type": "response.completed", "response": response}
    stream = model_server.stream(b"event: response.completed\ndata: " + orjson.dumps(last) + b"\n\n")
    model_server.answers = [httpx.Response(200, json=response), stream]
    server = NativeServer(http, RESPONSES, model=None)
    own = CallContext(
        dialect=OpenAIResponses(), native={"model": "gpt", "input": "hi"}, forced={"max_tokens": 4}
    )
    answer = await server.complete({"model": "gpt"}, own)
    chunks = [chunk async for chunk in server.stream({"model": "gpt"}, own)]
    assert orjson.loads(answer[NATIVE]) == response
    assert all(chunk[NATIVE].last for chunk in chunks)
    assert (
        b"".join(chunk[NATIVE].data for chunk in chunks).count(b"response.completed") == 2
    )  # event and type
    assert len(chunks) > 1  # the one event says several
    assert model_server.bodies[0] == {"model": "gpt", "input": "hi", "max_output_tokens": 4}
    assert model_server.requests[0].url.path == "/v1/responses"


def test_only_calls_of_its_own_format_are_taken(server):
    assert server.takes(context())
    assert not server.takes(context(dialect=OpenAIChat()))
    assert not server.takes(CallContext())


def test_each_provider_has_its_own_header_for_the_key():
    assert ANTHROPIC.key_headers("k") == {"x-api-key": "k"}
    assert RESPONSES.key_headers("k") == {"authorization": "Bearer k"}
    assert ANTHROPIC.key_headers(None) == {}


async def test_it_has_no_embeddings(server):
    with pytest.raises(UpstreamError) as caught:
        await server.embed({"model": "claude"})
    assert caught.value.status == 404
