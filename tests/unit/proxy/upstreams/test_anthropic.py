"""A server of Anthropic's answers every client: its own unchanged, the others' translated."""

from __future__ import annotations

import httpx
import orjson
import pytest

from agl.proxy.canonical import upstream_chat
from agl.proxy.dialects.anthropic_messages import AnthropicMessages
from agl.proxy.dialects.openai_chat import OpenAIChat
from agl.proxy.dialects.openai_completions import OpenAICompletions
from agl.proxy.refusal import CallRefusedError
from agl.proxy.streams import StreamedAnswer
from agl.proxy.upstream import NATIVE, CallContext
from agl.proxy.upstreams.anthropic import AnthropicServer
from agl.proxy.upstreams.base import UpstreamError

CHAT = {"model": "claude", "messages": [{"role": "user", "content": "weather?"}], "max_tokens": 50}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "sig"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Zürich"}}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [THINKING, {"type": "text", "text": " I look.\n"}, USE, {**USE, "id": "toolu_2"}],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 2},
}
INPUT = '{"city": "Zürich"}'


def events():
    """The message as Anthropic streams it, its tool inputs cut."""
    yield "message_start", {"message": {**MESSAGE, "content": [], "stop_reason": None}}
    yield "ping", {}
    for index, block in enumerate(MESSAGE["content"]):
        kind = block["type"]
        start = {
            "text": {"text": ""},
            "thinking": {"thinking": "", "signature": ""},
            "tool_use": {"input": {}},
        }
        yield "content_block_start", {"index": index, "content_block": {**block, **start[kind]}}
        if kind == "tool_use":
            deltas = [{"type": "input_json_delta", "partial_json": INPUT[i : i + 4]} for i in range(0, 18, 4)]
        else:
            deltas = [{"type": f"{kind}_delta", kind: block[kind]}]
        if kind == "thinking":
            deltas.append({"type": "signature_delta", "signature": "sig"})
        yield from (("content_block_delta", {"index": index, "delta": delta}) for delta in deltas)
        yield "content_block_stop", {"index": index}
    told = {"delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": {"output_tokens": 2}}
    yield "message_delta", told
    yield "message_stop", {}


def framed():
    return [
        f"event: {name}\ndata: ".encode() + orjson.dumps({"type": name, **data}) + b"\n\n"
        for name, data in events()
    ]


def chat(**native):
    return CallContext(dialect=OpenAIChat(), native={**CHAT, **native})


def own(**native):
    return CallContext(dialect=AnthropicMessages(), native={**CHAT, **native})


@pytest.fixture
def server(http):
    return AnthropicServer(http, model="claude-x")


async def streamed(server):
    whole = StreamedAnswer()
    async for chunk in server.stream(upstream_chat(CHAT, {}), chat()):
        assert NATIVE not in chunk
        assert chunk["object"] == "chat.completion.chunk"
        whole.add(chunk)
    return whole.answer()


async def test_a_chat_clients_call_is_translated_and_answered_as_a_chat(server, model_server):
    model_server.answers = [httpx.Response(200, json=MESSAGE)]
    answer = await server.complete(upstream_chat(CHAT, {"temperature": 0.5}), chat())
    assert model_server.requests[0].url.path == "/v1/messages"
    assert model_server.requests[0].headers["anthropic-version"] == "2023-06-01"
    assert model_server.bodies == [
        {
            "model": "claude-x",
            "max_tokens": 50,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "weather?"}]}],
            "temperature": 0.5,
        }
    ]
    (choice,) = answer["choices"]
    said = choice["message"]
    assert (said["content"], said["reasoning_content"]) == (" I look.\n", "hm")
    assert [call["id"] for call in said["tool_calls"]] == ["toolu_1", "toolu_2"]
    assert said["tool_calls"][0]["function"] == {"name": "weather", "arguments": INPUT}
    assert choice["finish_reason"] == "tool_calls"
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (7, 2)
    assert answer["created"] > 0
    assert NATIVE not in answer


async def test_a_stream_makes_the_plain_answer_and_its_turn_can_be_sent_back_signed(server, model_server):
    model_server.answers = [model_server.stream(*framed()), httpx.Response(200, json=MESSAGE)]
    whole = await streamed(server)
    plain = await server.complete(upstream_chat(CHAT, {}), chat())
    assert whole["choices"][0]["message"] == plain["choices"][0]["message"]
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    assert whole["usage"] == plain["usage"]
    back = [*CHAT["messages"], whole["choices"][0]["message"]]
    await server.complete(upstream_chat(CHAT | {"messages": back}, {}), chat())
    assert model_server.bodies[-1]["messages"][1] == {"role": "assistant", "content": MESSAGE["content"]}


async def test_anthropics_own_client_is_passed_through(server, model_server):
    sent = orjson.dumps(MESSAGE)
    model_server.answers = [httpx.Response(200, content=sent)]
    answer = await server.complete(CHAT, own(tools=[{"type": "web_search_20250305", "name": "web_search"}]))
    assert answer[NATIVE] == sent
    assert model_server.bodies[0]["tools"] == [{"type": "web_search_20250305", "name": "web_search"}]
    model_server.answers = [model_server.stream(*framed())]
    chunks = [chunk async for chunk in server.stream(CHAT, own())]
    assert b"".join(chunk[NATIVE].data for chunk in chunks) == b"".join(framed())


async def test_the_servers_refusal_and_a_break_in_its_stream_are_the_callers(server, model_server):
    told = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
    model_server.answers = [httpx.Response(429, json=told)]
    with pytest.raises(UpstreamError, match="slow down") as caught:
        await server.complete(upstream_chat(CHAT, {}), chat())
    assert (caught.value.status, caught.value.body, caught.value.retry) == (429, told, True)
    model_server.answers = [model_server.stream(*framed()[:-1])]
    with pytest.raises(UpstreamError, match="before the end"):
        await streamed(server)


async def test_tokens_that_a_client_wants_to_see_are_refused_by_name(server, model_server):
    for name in ("logprobs", "return_token_ids"):
        with pytest.raises(CallRefusedError, match=name):
            await server.complete(upstream_chat(CHAT, {}), chat(**{name: True}))
    assert not model_server.requests


async def test_tokens_are_counted_by_anthropic_itself(server, model_server):
    model_server.answers = [httpx.Response(200, json={"input_tokens": 12})]
    thinking = {"type": "enabled", "budget_tokens": 1024}
    assert await server.count_tokens(CHAT, own(thinking=thinking, stream=True)) == 12
    assert await server.count_tokens(upstream_chat(CHAT, {}), chat()) == 12
    assert [request.url.path for request in model_server.requests] == ["/v1/messages/count_tokens"] * 2
    assert model_server.bodies[0] == {
        "model": "claude-x",
        "messages": CHAT["messages"],
        "thinking": thinking,
    }
    model_server.answers = [httpx.Response(200, json={})]
    with pytest.raises(UpstreamError, match="how many tokens"):
        await server.count_tokens(CHAT, own())


async def test_it_takes_every_call_but_text_completions_and_what_another_provider_alone_can_do(server):
    refusal = CallRefusedError("x", status=400, code="x")
    assert server.takes(chat())
    assert server.takes(own())
    assert server.takes(CallContext(dialect=AnthropicMessages(), native_only=refusal))
    assert not server.takes(CallContext(dialect=OpenAIChat(), native_only=refusal))
    assert not server.takes(CallContext(dialect=OpenAICompletions()))


async def test_it_has_no_embeddings_and_is_well_while_it_lists_models(server, model_server):
    with pytest.raises(UpstreamError, match="no embeddings"):
        await server.embed({"model": "e"})
    model_server.answers = [httpx.Response(200, json={"data": []})]
    assert await server.probe()
    await server.aclose()
