"""The proxy over real HTTP, spoken to by OpenAI's own client, recording into the in-memory store."""

import asyncio
import json
import signal
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from served_proxy import HELLO, ScriptedEngine, client_of, serving, spans_of

from agl.errors import ConfigError, InferenceError
from agl.inference.external import ExternalEngine
from agl.proxy import LLMProxy
from agl.store.sqlite import InMemoryLightningStore
from agl.types import attributes as key
from agl.types.packing import floats_from_packed, ids_from_packed


@pytest.fixture
def engine():
    return ScriptedEngine()


@pytest.fixture
async def store():
    async with InMemoryLightningStore() as opened:
        yield opened


async def test_openais_client_runs_unmodified_and_the_record_is_what_the_engine_saw(store, engine):
    async with serving(store, engine) as (_, llm, attempt), client_of(llm) as client:
        tools = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]
        answer = await client.chat.completions.create(
            model=llm.model, messages=HELLO, tools=tools, temperature=0.5
        )
        (span,) = await spans_of(store, attempt)
        names = [model.id async for model in client.models.list()]
    assert answer.choices[0].message.content == "hello 1.0"
    assert answer.choices[0].logprobs is None
    assert answer.model_extra == {}
    assert answer._request_id == span.span_id
    assert names == ["policy"]
    read, (asked,) = span.attributes, engine.requests
    assert json.loads(read[key.INPUT_MESSAGES]) == asked["messages"] == HELLO
    assert json.loads(read[key.TOOL_DEFINITIONS]) == asked["tools"] == tools
    assert json.loads(read[key.OUTPUT_MESSAGES]) == [{"role": "assistant", "content": "hello 1.0"}]
    assert read[key.TEMPERATURE] == asked["temperature"] == 0.5
    assert ids_from_packed(read[key.PROMPT_TOKEN_IDS]) == [5, 8, 9]
    assert ids_from_packed(read[key.RESPONSE_TOKEN_IDS]) == [1, 100, 2]
    assert floats_from_packed(read[key.RESPONSE_LOGPROBS]) == [-1 / 128, -100 / 128, -2 / 128]
    assert read[key.POLICY_VERSION] == 5
    assert (span.status.code, span.sequence_id) == ("ok", 1)


async def test_openais_blocking_client_runs_unmodified(store, engine):
    async with serving(store, engine) as (_, llm, attempt):

        def talk():
            with OpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
                return client.chat.completions.create(model=llm.model, messages=HELLO)

        answer = await asyncio.to_thread(talk)
        assert answer.choices[0].message.content == "hello 1.0"
        assert len(await spans_of(store, attempt)) == 1


async def test_an_agent_that_asks_for_logprobs_gets_them(store, engine):
    async with serving(store, engine) as (_, llm, _), client_of(llm) as client:
        answer = await client.chat.completions.create(model=llm.model, messages=HELLO, logprobs=True)
    assert [entry.logprob for entry in answer.choices[0].logprobs.content] == [-1 / 128, -100 / 128, -2 / 128]


async def test_the_resources_sampling_is_forced_on_the_agent(store, engine):
    forced = {"temperature": 1.0, "max_tokens": 7}
    async with serving(store, engine, sampling=forced) as (_, llm, attempt), client_of(llm) as client:
        await client.chat.completions.create(
            model=llm.model, messages=HELLO, temperature=0, max_completion_tokens=4000, top_p=0.3
        )
        (span,) = await spans_of(store, attempt)
    (asked,) = engine.requests
    assert (asked["temperature"], asked["max_tokens"], asked["top_p"]) == (1.0, 7, 0.3)
    assert "max_completion_tokens" not in asked
    assert (span.attributes[key.TEMPERATURE], span.attributes[key.MAX_TOKENS]) == (1.0, 7)


async def test_both_of_two_choices_are_answered_and_recorded(store, engine):
    async with serving(store, engine) as (_, llm, attempt), client_of(llm) as client:
        answer = await client.chat.completions.create(model=llm.model, messages=HELLO, n=2)
        (span,) = await spans_of(store, attempt)
    assert [choice.message.content for choice in answer.choices] == ["hello 1.0", "hello 1.1"]
    assert ids_from_packed(span.attributes["agl.response_token_ids"]) == [1, 100, 2]
    assert ids_from_packed(span.attributes["agl.response_token_ids.1"]) == [1, 101, 2]


async def test_the_engines_error_reaches_the_agent_unchanged(store, engine):
    error = {
        "message": "prompt of 9000 tokens",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "too_long",
    }
    engine.failure = InferenceError("prompt of 9000 tokens", status=400, body={"error": error})
    async with serving(store, engine) as (_, llm, attempt), client_of(llm) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model=llm.model, messages=HELLO)
        (span,) = await spans_of(store, attempt)
    assert caught.value.body == error
    assert span.status.code == "error"


async def test_unknown_ids_are_refused_in_words(store, engine):
    async with serving(store, engine) as (server, llm, attempt):
        base_url = f"{server.url}/rollout/nobody/attempt/{attempt.attempt_id}/v1"
        async with client_of(llm.model_copy(update={"base_url": base_url})) as client:
            with pytest.raises(openai.PermissionDeniedError, match="another attempt's"):
                await client.chat.completions.create(model=llm.model, messages=HELLO)
        stranger = llm.model_copy(update={"base_url": base_url, "api_key": "none"})
        async with client_of(stranger) as client:
            with pytest.raises(openai.NotFoundError, match="rollout nobody is not in the store"):
                await client.chat.completions.create(model=llm.model, messages=HELLO)
        async with client_of(llm.model_copy(update={"base_url": f"{server.url}/v1"})) as client:
            with pytest.raises(openai.NotFoundError, match=r"/rollout/\{rollout_id\}"):
                await client.chat.completions.create(model=llm.model, messages=HELLO)
    assert engine.requests == []


async def test_a_finished_attempt_can_make_no_more_calls(store, engine):
    async with serving(store, engine) as (_, llm, attempt), client_of(llm) as client:
        await store.update_attempt(attempt.rollout_id, attempt.attempt_id, status="succeeded", reward=1.0)
        with pytest.raises(openai.ConflictError, match=r"is over \(succeeded\)"):
            await client.chat.completions.create(model=llm.model, messages=HELLO)
    assert engine.requests == []


async def test_an_agent_that_hangs_up_cancels_the_engines_work(store, engine):
    engine.gate.clear()
    async with serving(store, engine) as (_, llm, attempt), client_of(llm, max_retries=0) as client:
        call = asyncio.create_task(client.chat.completions.create(model=llm.model, messages=HELLO))
        await engine.asked.wait()
        call.cancel()
        async with asyncio.timeout(5):
            await engine.cancelled.wait()
    (span,) = await spans_of(store, attempt)
    assert (span.status.code, span.attributes[key.ERROR_TYPE]) == ("error", "cancelled")


async def test_a_retry_after_a_cut_response_is_not_sampled_twice(store, engine):
    async with serving(store, engine) as (server, llm, attempt), cutting_relay(server.url) as (relay, cuts):
        cut_llm = llm.model_copy(update={"base_url": llm.base_url.replace(server.url, relay)})
        async with client_of(cut_llm, max_retries=2) as client:
            answer = await client.chat.completions.create(model=llm.model, messages=HELLO)
        (span,) = await spans_of(store, attempt)
    assert cuts == ["cut", "passed"]
    assert answer.choices[0].message.content == "hello 1.0"
    assert (len(engine.requests), span.attributes[key.RESPONSE_ID]) == (1, "chatcmpl-1")


async def test_two_equal_intended_calls_are_two_records(store, engine):
    async with serving(store, engine) as (_, llm, attempt), client_of(llm) as client:
        calls = (client.chat.completions.create(model=llm.model, messages=HELLO) for _ in range(2))
        answers = await asyncio.gather(*calls)
        spans = await spans_of(store, attempt)
    assert {answer.id for answer in answers} == {"chatcmpl-1", "chatcmpl-2"}
    assert len(spans) == 2


async def test_200_concurrent_calls_give_200_complete_records(store, engine):
    async with serving(store, engine) as (_, llm, attempt), client_of(llm) as client:

        async def call(number):
            messages = [{"role": "user", "content": f"call {number}"}]
            return await client.chat.completions.create(model=llm.model, messages=messages)

        answers = await asyncio.gather(*(call(number) for number in range(200)))
        spans = await spans_of(store, attempt)
    said = {span.attributes[key.RESPONSE_ID]: span for span in spans}
    assert len(said) == len(spans) == 200
    assert sorted(span.sequence_id for span in spans) == list(range(1, 201))
    for number, answer in enumerate(answers):
        read = said[answer.id].attributes
        assert json.loads(read[key.INPUT_MESSAGES])[0]["content"] == f"call {number}"
        assert json.loads(read[key.OUTPUT_MESSAGES])[0]["content"] == answer.choices[0].message.content
        assert ids_from_packed(read[key.RESPONSE_TOKEN_IDS])[0] == int(answer.id.removeprefix("chatcmpl-"))
        assert len(floats_from_packed(read[key.RESPONSE_LOGPROBS])) == 3


async def test_a_store_that_is_closed_is_a_503_to_the_agent(engine):
    store = InMemoryLightningStore()
    await store.open()
    async with serving(store, engine) as (_, llm, _), client_of(llm, max_retries=0) as client:
        await client.chat.completions.create(model=llm.model, messages=HELLO)
        await store.close()
        with pytest.raises(openai.InternalServerError, match="store unavailable") as caught:
            await client.chat.completions.create(model=llm.model, messages=HELLO)
    assert caught.value.status_code == 503


async def test_hostile_requests_are_refused_and_the_proxy_lives_on(store, engine):
    proxy = LLMProxy(max_body_bytes=100_000)
    async with serving(store, engine, proxy=proxy) as (server, llm, _), httpx.AsyncClient() as http:
        url = f"{llm.base_url}/chat/completions"
        assert (await http.post(url, content=b"{")).status_code == 400
        assert (await http.post(url, content=b'{"messages": "\xff"}')).status_code == 400
        assert (await http.get(url)).status_code == 405
        assert (await http.post(url, content=b"x" * 700_000)).json()["error"]["code"] == "body_too_large"
        assert (await http.get(url, headers={"x": "y" * 70_000})).status_code == 431
        assert (await http.get(f"{server.url}/health")).json() == {"status": "ok"}
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(server.url).port)
        writer.write(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        assert b"400" in await reader.read()
        writer.close()
        async with client_of(llm) as client:
            await client.chat.completions.create(model=llm.model, messages=HELLO)


async def test_a_proxy_open_to_other_machines_lets_in_only_the_token(store, engine):
    proxy = LLMProxy(host="0.0.0.0", token="t0ken")
    async with serving(store, engine, proxy=proxy) as (server, llm, attempt):
        here = llm.base_url.replace(server.url, f"http://127.0.0.1:{httpx.URL(server.url).port}")
        async with client_of(llm.model_copy(update={"base_url": here})) as client:
            await client.chat.completions.create(model=llm.model, messages=HELLO)
        async with client_of(llm.model_copy(update={"base_url": here, "api_key": "guess"})) as client:
            with pytest.raises(openai.AuthenticationError, match="needs the attempt's key"):
                await client.chat.completions.create(model=llm.model, messages=HELLO)
        async with httpx.AsyncClient() as http:
            with suppress(httpx.TransportError):  # the connection may be gone before the refusal is read
                refused = await http.get(f"{here}/models", headers={"x": "y" * 200_000})
                assert refused.status_code in (400, 431)
        (span,) = await spans_of(store, attempt)
    assert "t0ken" not in span.model_dump_json()


async def test_the_proxy_stops_within_two_seconds_whatever_clients_do(store, engine):
    handlers = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    engine.gate.clear()
    async with serving(store, engine) as (server, llm, attempt):
        client = AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key, max_retries=0)
        port = httpx.URL(server.url).port
        idle = await asyncio.open_connection("127.0.0.1", port)
        slow = await asyncio.open_connection("127.0.0.1", port)
        slow[1].write(f"POST {httpx.URL(llm.base_url).path}/chat/completions HTTP/1.1\r\n".encode())
        slow[1].write(b"Host: x\r\nContent-Length: 1000\r\n\r\nonly a part")
        call = asyncio.create_task(client.chat.completions.create(model=llm.model, messages=HELLO))
        await engine.asked.wait()
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
        began = time.monotonic()
    assert time.monotonic() - began < 2.0
    with pytest.raises(openai.InternalServerError, match="stopping"):
        await call
    (span,) = await spans_of(store, attempt)
    assert span.attributes[key.ERROR_TYPE] == "cancelled"
    assert b"503" in await slow[0].readline()
    for _, writer in (idle, slow):
        writer.close()
    await client.close()


async def test_a_taken_port_is_a_setting_to_change(store, engine):
    async with LLMProxy().serving(store, engine) as server:
        port = httpx.URL(server.url).port
        with pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            async with LLMProxy(port=port).serving(store, engine):
                pass


async def test_an_external_engine_passes_ids_answers_and_errors_on(store, engine):
    """The external server is another proxy before the scripted engine."""
    async with InMemoryLightningStore() as far_store, serving(far_store, engine) as (_, far_llm, _):
        external = ExternalEngine(far_llm.base_url, "policy", ask_for_token_ids=True)
        async with (
            external,
            serving(store, external) as (_, llm, attempt),
            client_of(llm, max_retries=0) as client,
        ):
            await client.chat.completions.create(model=llm.model, messages=HELLO)
            engine.failure = InferenceError(
                "busy", status=429, body={"error": {"message": "busy", "code": "busy"}}
            )
            with pytest.raises(openai.RateLimitError) as caught:
                await client.chat.completions.create(model=llm.model, messages=HELLO)
            answered, failed = await spans_of(store, attempt)
    assert ids_from_packed(answered.attributes[key.RESPONSE_TOKEN_IDS]) == [1, 100, 2]
    assert caught.value.body == {"message": "busy", "code": "busy"}
    assert failed.attributes[key.ERROR_TYPE] == "429"


async def test_an_external_engine_out_of_reach_is_a_502_that_names_it(store):
    gone = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{gone.sockets[0].getsockname()[1]}/v1"
    gone.close()
    await gone.wait_closed()
    async with AsyncExitStack() as stack:
        external = await stack.enter_async_context(ExternalEngine(url, "policy"))
        _, llm, _ = await stack.enter_async_context(serving(store, external))
        client = await stack.enter_async_context(client_of(llm, max_retries=0))
        with pytest.raises(openai.InternalServerError, match=url) as caught:
            await client.chat.completions.create(model=llm.model, messages=HELLO)
    assert caught.value.status_code == 502


@asynccontextmanager
async def cutting_relay(url):
    """A relay to ``url`` that loses the first response: it reads some of it and hangs up on the client."""
    port = httpx.URL(url).port
    seen = []

    async def relay(reader, writer):
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
        request = await reader.read(65536)
        upstream_writer.write(request)
        response = await upstream_reader.read(65536)
        cut = not seen
        seen.append("cut" if cut else "passed")
        if not cut:
            writer.write(response)
            await writer.drain()
        upstream_writer.close()
        writer.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen
