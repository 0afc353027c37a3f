"""OpenAI-compatible servers: what they are asked, what they refuse, what their streams say."""

from __future__ import annotations

import httpx
import orjson
import pytest
from model_network import CUT

from agl.proxy.dialects.openai_chat import OpenAIChat
from agl.proxy.refusal import CallRefusedError
from agl.proxy.upstream import CallContext
from agl.proxy.upstreams.base import UpstreamError
from agl.proxy.upstreams.openai import OpenAIServer

CHAT = {"model": "policy", "messages": [], "temperature": 1.0, "logprobs": True, "return_token_ids": True}
ANSWER = {"id": "1", "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}]}
NOBODY = CallContext()


@pytest.fixture
def server(http):
    return OpenAIServer(http, model=None, token_ids=None, logprobs=None)


def refusal(text, status=400):
    return httpx.Response(status, json={"error": {"message": text}})


def event(**chunk):
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def piece(text, finish=None, index=0):
    return {"choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish}]}


async def test_a_call_asks_for_ids_and_logprobs_and_is_answered_as_the_server_does(server, model_server):
    model_server.answers = [httpx.Response(200, json=ANSWER)]
    assert await server.complete(CHAT, NOBODY) == ANSWER
    assert model_server.bodies == [{**CHAT, "stream": False}]
    assert model_server.requests[0].url.path == "/v1/chat/completions"


async def test_the_servers_own_model_name_is_used(http, model_server):
    model_server.answers = [httpx.Response(200, json=ANSWER)]
    server = OpenAIServer(http, model="Qwen/Qwen3", token_ids=None, logprobs=None)
    await server.complete(CHAT, NOBODY)
    await server.embed({"model": "policy", "input": "a"})
    assert [body["model"] for body in model_server.bodies] == ["Qwen/Qwen3", "Qwen/Qwen3"]
    assert model_server.requests[1].url.path == "/v1/embeddings"


async def test_a_refused_field_is_left_out_for_good(server, model_server):
    model_server.answers = [
        refusal("Unrecognized request argument supplied: return_token_ids"),
        refusal("You are not allowed to request logprobs from this model", status=403),
        httpx.Response(200, json=ANSWER),
    ]
    assert await server.complete(CHAT, NOBODY) == ANSWER
    assert await server.complete(CHAT, NOBODY) == ANSWER
    asked = [("return_token_ids" in body, "logprobs" in body) for body in model_server.bodies]
    assert asked == [(True, True), (False, True), (False, False), (False, False)]


async def test_a_limit_that_is_wanted_under_its_newer_name_gets_it_for_good(server, model_server):
    model_server.answers = [
        refusal("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
        httpx.Response(200, json=ANSWER),
    ]
    for _ in range(2):
        await server.complete({**CHAT, "max_tokens": 7}, CallContext())
    limits = [(body.get("max_tokens"), body.get("max_completion_tokens")) for body in model_server.bodies]
    assert limits == [(7, None), (None, 7), (None, 7)]


async def test_a_limit_that_is_too_large_is_the_clients_to_mend(server, model_server):
    model_server.answers = [refusal("'max_tokens' or 'max_completion_tokens' is too large: 99999")]
    with pytest.raises(UpstreamError, match="too large"):
        await server.complete({**CHAT, "max_tokens": 99999}, CallContext())
    assert len(model_server.bodies) == 1


async def test_what_the_client_asked_for_is_not_left_out_behind_its_back(server, model_server):
    model_server.answers = [refusal("logprobs are not supported")]
    own = CallContext(dialect=OpenAIChat(), native={"logprobs": True})
    with pytest.raises(UpstreamError, match="not supported"):
        await server.complete(CHAT, own)
    assert len(model_server.requests) == 1


async def test_a_field_that_the_settings_insist_on_is_never_left_out(http, model_server):
    model_server.answers = [refusal("unknown field return_token_ids")]
    server = OpenAIServer(http, model=None, token_ids=True, logprobs=None)
    with pytest.raises(UpstreamError, match="unknown field"):
        await server.complete(CHAT, NOBODY)
    assert len(model_server.requests) == 1


async def test_a_field_that_the_settings_switch_off_is_not_asked_for(http, model_server):
    model_server.answers = [httpx.Response(200, json=ANSWER)]
    await OpenAIServer(http, model=None, token_ids=False, logprobs=False).complete(CHAT, NOBODY)
    assert model_server.bodies == [{"model": "policy", "messages": [], "temperature": 1.0, "stream": False}]


async def test_a_refusal_about_something_else_is_the_clients(server, model_server):
    model_server.answers = [refusal("messages: too short")]
    with pytest.raises(UpstreamError) as caught:
        await server.complete(CHAT, NOBODY)
    assert (caught.value.status, caught.value.retry) == (400, False)
    assert caught.value.body == {"error": {"message": "messages: too short"}}


async def test_a_stream_is_its_chunks_and_asks_for_the_usage(server, model_server):
    chunks = [
        piece("h") | {"prompt_token_ids": [1]},
        piece("i", "stop"),
        {"choices": [], "usage": {"total_tokens": 3}},
    ]
    model_server.answers = [model_server.stream(*(event(**chunk) for chunk in chunks), b"data: [DONE]\n\n")]
    assert [chunk async for chunk in server.stream(CHAT, NOBODY)] == chunks
    (body,) = model_server.bodies
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


async def test_a_stream_learns_what_the_server_refuses_before_its_first_chunk(server, model_server):
    answered = model_server.stream(event(**piece("hi", "stop")), b"data: [DONE]\n\n")
    model_server.answers = [refusal("stream_options: unexpected"), answered]
    assert [chunk["choices"][0]["delta"]["content"] async for chunk in server.stream(CHAT, NOBODY)] == ["hi"]
    assert ["stream_options" in body for body in model_server.bodies] == [True, False]


async def test_a_stream_without_its_last_word_is_whole_when_every_choice_has_ended(server, model_server):
    model_server.answers = [
        model_server.stream(event(**piece("a", "stop")), event(**piece("b", "length", 1)))
    ]
    assert len([chunk async for chunk in server.stream(CHAT, NOBODY)]) == 2


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([event(**piece("a"))], "before the end"),
        ([event(**piece("a", "stop")), event(**piece("b", index=1))], "before the end"),
        ([], "before the end"),
        ([b"data: nonsense\n\n"], "JSON object"),
        ([b"<html>\n\n"], "before the end"),
        ([event(**piece("a")), CUT], "broke off"),
    ],
)
async def test_a_stream_that_is_cut_or_garbage_is_an_error(server, model_server, pieces, words):
    model_server.answers = [model_server.stream(*pieces)]
    with pytest.raises(UpstreamError, match=words) as caught:
        [chunk async for chunk in server.stream(CHAT, NOBODY)]
    assert (caught.value.status, caught.value.retry, caught.value.sick) == (502, True, True)


async def test_a_failure_told_in_the_stream_keeps_its_status_and_body(server, model_server):
    told = {"error": {"message": "out of blocks", "code": 503}}
    model_server.answers = [model_server.stream(event(**piece("a")), event(**told))]
    with pytest.raises(UpstreamError, match="out of blocks") as caught:
        [chunk async for chunk in server.stream(CHAT, NOBODY)]
    assert (caught.value.status, caught.value.body) == (503, told)


async def test_a_failure_told_in_the_stream_does_not_repeat_the_key(server, model_server):
    model_server.answers = [model_server.stream(event(error={"message": "no key s3cret", "code": "s3cret"}))]
    with pytest.raises(UpstreamError) as caught:
        [chunk async for chunk in server.stream(CHAT, NOBODY)]
    assert caught.value.body == {"error": {"message": "no key ***", "code": "***"}}
    assert "s3cret" not in str(caught.value)


async def test_closing_a_stream_closes_the_servers(server, model_server):
    model_server.answers = [model_server.stream(*[event(**piece("a"))] * 1000)]
    chunks = server.stream(CHAT, NOBODY)
    await anext(chunks)
    await chunks.aclose()
    assert model_server.num_closed == 1


async def test_a_prompt_goes_to_text_completions(server, model_server):
    native = {
        "id": "c",
        "object": "text_completion",
        "choices": [{"index": 0, "text": "hi", "finish_reason": "stop"}],
    }
    model_server.answers = [
        httpx.Response(200, json=native),
        model_server.stream(event(**native), b"data: [DONE]\n\n"),
    ]
    request = {"model": "policy", "prompt": "p", "logprobs": True, "max_tokens": 4}
    answer = await server.complete(request, NOBODY)
    (chunk,) = [chunk async for chunk in server.stream(request, NOBODY)]
    assert answer["choices"][0]["message"]["content"] == "hi"
    assert chunk["choices"][0]["delta"] == {"content": "hi"}
    assert {request.url.path for request in model_server.requests} == {"/v1/completions"}
    assert [body["logprobs"] for body in model_server.bodies] == [1, 1]


def test_what_only_the_provider_can_do_is_not_taken(server):
    refused = CallRefusedError("server tools", status=400, code="unsupported_value")
    assert server.takes(NOBODY)
    assert not server.takes(CallContext(native_only=refused))


async def test_it_is_probed_by_its_models(server, model_server):
    model_server.answers = [httpx.Response(200)]
    assert await server.probe()
    await server.aclose()
