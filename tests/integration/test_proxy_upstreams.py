"""The proxy before real model servers over HTTP: routed, balanced, retried, killed, changed while it runs."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import httpx
import openai
import orjson
import psutil
import pytest
from anthropic import AsyncAnthropic
from model_servers import model_process, moody_server
from scripted_vllm import answer_of, prompt_ids, scripted_vllm
from served_asgi import serving_asgi
from served_proxy import HELLO, ScriptedEngine, client_of, serving, spans_of

from agl.errors import ConfigError
from agl.proxy import LLMProxy
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ModelEndpoint, ProxyLLM, RolloutRequest, SpanQuery
from agl.types import attributes as key
from agl.types.packing import ids_from_packed

MODEL = "judge"


@pytest.fixture
async def store():
    async with InMemoryLightningStore() as opened:
        yield opened


def proxy_with(*urls, **settings):
    return LLMProxy(endpoints={"judge": ModelEndpoint(model=MODEL, urls=urls, **settings)})


@asynccontextmanager
async def calling(store, proxy, engine=None, **client_settings):
    """Yields (a client of one attempt without retries of its own, the attempt, the served proxy)."""
    async with (
        serving(store, engine or ScriptedEngine(), proxy=proxy) as (server, llm, attempt),
        client_of(llm, **{"max_retries": 0} | client_settings) as client,
    ):
        yield client, attempt, server


def ask(client, **asked):
    return client.chat.completions.create(**{"model": MODEL, "messages": HELLO} | asked)


async def streamed_text(client, **asked):
    stream = await ask(client, stream=True, **asked)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


async def test_a_call_is_routed_by_its_model_and_recorded_with_the_servers_exact_ids(store):
    engine = ScriptedEngine()
    async with AsyncExitStack() as stack:
        upstream, url = await stack.enter_async_context(scripted_vllm())
        proxy = proxy_with(url, upstream_model="Qwen/Qwen3")
        client, attempt, _ = await stack.enter_async_context(calling(store, proxy, engine))
        plain = await ask(client)
        text = await streamed_text(client)
        own = await ask(client, model="policy")
        names = [model.id async for model in client.models.list()]
        first, second, third = await spans_of(store, attempt)
    asked = upstream.requests[0]
    expected = answer_of(asked)
    assert asked["model"] == "Qwen/Qwen3"
    assert plain.choices[0].message.content == text == expected["choices"][0]["message"]["content"]
    assert own.choices[0].message.content == "hello 1.0"
    assert names == ["policy", MODEL]
    for span in (first, second):
        assert ids_from_packed(span.attributes[key.PROMPT_TOKEN_IDS]) == prompt_ids(asked)
        assert ids_from_packed(span.attributes[key.RESPONSE_TOKEN_IDS]) == expected["choices"][0]["token_ids"]
        assert span.attributes[key.REQUEST_MODEL] == MODEL
        assert span.attributes[key.UPSTREAM] == "judge"
    assert third.attributes[key.POLICY_VERSION] == 5
    assert len(engine.requests) == 1


async def test_an_agents_calls_and_the_calls_of_a_mode_have_their_own_routes(store):
    async with scripted_vllm() as (critics, critics_url), scripted_vllm() as (tests, tests_url):
        proxy = LLMProxy(
            endpoints={
                "critics": ModelEndpoint(model=MODEL, urls=(critics_url,), agents=("critic.*",)),
                "tests": ModelEndpoint(model="policy", urls=(tests_url,), modes=("test",)),
            }
        )
        engine = ScriptedEngine()
        async with proxy.serving(store, engine) as server:
            llm = ProxyLLM(
                base_url=server.url, model="policy", api_key=server.api_key, sampling={"top_p": 0.5}
            )
            await store.add_resources({"llm": llm})
            for mode in ("train", "test"):
                attempt = (await store.start_rollout(RolloutRequest(task=1, mode=mode))).attempt
                given = llm.for_attempt(attempt.rollout_id, attempt.attempt_id)
                root = given.base_url.removesuffix("/v1")
                for base_url in (given.base_url, f"{root}/agent/critic-2/v1"):
                    async with client_of(given.model_copy(update={"base_url": base_url})) as client:
                        await ask(client, model="policy")
    assert [(asked["model"], asked.get("top_p")) for asked in critics.requests] == [(MODEL, None)] * 2
    assert [(asked["model"], asked["top_p"]) for asked in tests.requests] == [("policy", 0.5)]
    assert [asked["top_p"] for asked in engine.requests] == [0.5]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mood", [429, (429, {"retry_after": "0"}), 500, 503, "cut", "garbage"])
async def test_a_failure_that_passes_is_not_seen_by_the_agent(store, mood, stream):
    async with moody_server() as (upstream, url):
        upstream.moods = [mood]
        async with calling(store, proxy_with(url)) as (client, attempt, _):
            text = await streamed_text(client) if stream else (await ask(client)).choices[0].message.content
            spans = await spans_of(store, attempt)
    assert text == answer_of(upstream.scripted.requests[0])["choices"][0]["message"]["content"]
    assert upstream.num_requests == 2
    assert [span.status.code for span in spans] == ["ok"]


async def test_a_failure_that_stays_reaches_the_agent_with_its_status_and_body(store):
    async with moody_server() as (upstream, url):
        upstream.moods = [529] * 9
        proxy = LLMProxy(endpoints={"judge": ModelEndpoint(model=MODEL, urls=(url,))}, max_retries=1)
        async with calling(store, proxy) as (client, attempt, _):
            with pytest.raises(openai.InternalServerError) as caught:
                await ask(client)
            (span,) = await spans_of(store, attempt)
    assert (caught.value.status_code, caught.value.body) == (529, {"message": "moody", "code": 529})
    assert span.attributes[key.ERROR_TYPE] == "529"
    assert upstream.num_requests == 2


async def test_a_request_that_is_wrong_is_not_tried_again(store):
    async with scripted_vllm() as (upstream, url), calling(store, proxy_with(url)) as (client, _, _):
        with pytest.raises(openai.BadRequestError, match="the prompt is too long"):
            await ask(client, messages=[{"role": "user", "content": "fail"}])
    assert len(upstream.requests) == 1


async def test_a_server_that_is_stuck_is_left_for_another_in_time(store):
    async with moody_server() as (stuck, stuck_url), scripted_vllm() as (_, url):
        stuck.moods = ["stuck"]
        proxy = LLMProxy(
            endpoints={
                "judge": ModelEndpoint(model=MODEL, urls=(stuck_url,), timeout_seconds=0.2),
                "spare": ModelEndpoint(model=MODEL, urls=(url,), priority=-1),
            },
            max_retries=0,
        )
        async with calling(store, proxy) as (client, attempt, _):
            await ask(client)
            (span,) = await spans_of(store, attempt)
            await stuck.left.wait()
    assert span.attributes[key.UPSTREAM] == "spare"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_that_leaves_ends_the_servers_call_within_a_second(store, stream):
    waits = [{"role": "user", "content": "wait"}]
    async with scripted_vllm() as (upstream, url), calling(store, proxy_with(url)) as (client, attempt, _):
        if stream:
            answer = await ask(client, messages=waits, stream=True)
            await upstream.half_said.wait()
            left_at = time.monotonic()
            await answer.close()
        else:
            call = asyncio.create_task(ask(client, messages=waits))
            await upstream.asked.wait()
            left_at = time.monotonic()
            call.cancel()
        async with asyncio.timeout(10):
            await upstream.left.wait()
        took = time.monotonic() - left_at
    spans = await spans_of(store, attempt)
    assert took < 1.0
    assert spans[0].attributes[key.ERROR_TYPE] == "cancelled"


async def test_of_several_replicas_one_killed_in_the_middle_loses_no_call_that_had_not_begun_to_stream(store):
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(model_process(seconds_per_call=0.03)) for _ in range(3)]
        proxy = proxy_with(*(replica.url for replica in replicas))
        server = await stack.enter_async_context(proxy.serving(store, ScriptedEngine()))
        llm = ProxyLLM(base_url=server.url, model="policy", api_key=server.api_key)
        await store.add_resources({"llm": llm})
        answered = []

        async def agent(number):
            attempt = (await store.start_rollout(RolloutRequest(task=number))).attempt
            given = llm.for_attempt(attempt.rollout_id, attempt.attempt_id)
            async with client_of(given, max_retries=0) as client:
                for turn in range(10):
                    says = [{"role": "user", "content": f"{number} {turn}"}]
                    if number % 2:
                        await ask(client, messages=says)
                    else:
                        await streamed_text(client, messages=says)
                    answered.append(number)
                    if len(answered) == 60:
                        replicas[0].kill()

        await asyncio.gather(*(agent(number) for number in range(18)))
        spans = (await store.query_spans(SpanQuery(limit=1000))).items
    assert len(answered) == 180
    assert [span.status.code for span in spans] == ["ok"] * 180
    assert all(key.RESPONSE_TOKEN_IDS in span.attributes for span in spans)


async def test_a_server_that_comes_back_gets_calls_again(store):
    async with (
        moody_server() as (sick, sick_url),
        scripted_vllm() as (well, url),
        calling(store, proxy_with(sick_url, url)) as (_, _, server),
    ):

        async def call_of_a_new_rollout():
            attempt = (await store.start_rollout(RolloutRequest(task=1))).attempt
            base_url = f"{server.url}/rollout/{attempt.rollout_id}/attempt/{attempt.attempt_id}/v1"
            async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
                await ask(client)

        sick.is_down = True
        while sick.num_requests < 3:
            await call_of_a_new_rollout()
        for _ in range(10):
            await call_of_a_new_rollout()
        assert sick.num_requests == 3
        sick.is_down = False
        async with asyncio.timeout(30):
            while sick.num_requests == 3:
                await call_of_a_new_rollout()
    assert len(well.requests) >= 13


async def test_endpoints_are_registered_changed_and_withdrawn_while_calls_go_on(store):
    engine = ScriptedEngine()
    async with AsyncExitStack() as stack:
        first, first_url = await stack.enter_async_context(scripted_vllm())
        second, second_url = await stack.enter_async_context(scripted_vllm())
        client, attempt, _ = await stack.enter_async_context(calling(store, LLMProxy(), engine))
        lost, stop = [], asyncio.Event()

        async def agent():
            while not stop.is_set():
                try:
                    await ask(client)
                except openai.APIError as error:  # pragma: no cover - the promise is that there are none
                    lost.append(error)

        async def until_served_by(requests):
            seen = len(requests)
            async with asyncio.timeout(20):
                while len(requests) < seen + 3:  # noqa: ASYNC110 - three servers, one of them no server
                    await asyncio.sleep(0.01)

        agents = [asyncio.create_task(agent()) for _ in range(4)]
        await until_served_by(engine.requests)
        await store.add_resources({"judge": ModelEndpoint(model=MODEL, urls=(first_url,), policy_version=1)})
        await until_served_by(first.requests)
        await store.add_resources({"judge": ModelEndpoint(model=MODEL, urls=(second_url,), policy_version=2)})
        await until_served_by(second.requests)
        await store.add_resources({"judge": ModelEndpoint(model=MODEL, urls=(second_url,), withdrawn=True)})
        await until_served_by(engine.requests)
        stop.set()
        await asyncio.gather(*agents)
        spans = await spans_of(store, attempt)
    assert lost == []
    assert {span.status.code for span in spans} == {"ok"}
    assert len(spans) == len(engine.requests) + len(first.requests) + len(second.requests)
    versions = [span.attributes[key.POLICY_VERSION] for span in spans if key.UPSTREAM in span.attributes]
    assert {1, 2} == {version for version in versions if version != 5}


async def test_calls_wait_while_weights_change_and_none_is_under_way(store):
    async with scripted_vllm() as (upstream, url), calling(store, proxy_with(url)) as (client, _, server):
        async with server.router.paused() as drained:
            calls = [asyncio.create_task(ask(client)) for _ in range(5)]
            done, _ = await asyncio.wait(calls, timeout=0.2)
            assert drained
            assert not done
            assert upstream.requests == []
        answers = await asyncio.gather(*calls)
    assert len(answers) == len(upstream.requests) == 5


async def test_a_server_without_ids_is_asked_again_without_them_and_the_record_says_so(store):
    async with moody_server() as (upstream, url), calling(store, proxy_with(url)) as (client, attempt, _):
        upstream.moods = ["no_ids", "without_ids", "without_ids"]
        await ask(client)
        await ask(client)
        spans = await spans_of(store, attempt)
    assert upstream.num_requests == 3
    assert ["return_token_ids" in asked for asked in upstream.asked] == [False, False]
    assert [span.attributes[key.MISSING_IDS_CAUSE] for span in spans] == ["upstream_without_ids"] * 2


async def test_no_key_of_a_server_is_in_answers_records_or_logs(store, monkeypatch, caplog):
    secret = "sk-very-s3cret"
    monkeypatch.setenv("JUDGE_KEY", secret)
    async with moody_server() as (upstream, url):
        upstream.moods = ["echo"]
        with caplog.at_level(logging.DEBUG, logger="agl"):
            async with calling(store, proxy_with(url, api_key_env="JUDGE_KEY")) as (client, attempt, server):
                with pytest.raises(openai.AuthenticationError) as caught:
                    await ask(client)
                await ask(client)
                spans = await spans_of(store, attempt)
                seen = f"{caught.value} {caught.value.body} {caplog.text} {server} {spans}"
    assert [headers[b"authorization"] for headers in upstream.headers] == [f"Bearer {secret}".encode()] * 2
    assert secret not in seen
    assert "wrong key: Bearer ***" in str(caught.value)


async def test_a_request_cannot_send_the_proxy_anywhere_else(store):
    async with moody_server() as (upstream, url), moody_server() as (elsewhere, elsewhere_url):
        upstream.moods = ["redirect"]
        proxy = LLMProxy(endpoints={"judge": ModelEndpoint(model=MODEL, urls=(url,))}, max_retries=0)
        async with calling(store, proxy) as (client, _, _):
            with pytest.raises(openai.InternalServerError, match="neither an answer nor an error"):
                await ask(client)
            body = {"api_base": elsewhere_url, "base_url": elsewhere_url, "urls": [elsewhere_url]}
            await ask(
                client, extra_body=body, extra_headers={"x-forwarded-host": "elsewhere", "host": "elsewhere"}
            )
    assert upstream.num_requests == 2
    assert elsewhere.num_requests == 0


async def test_a_missing_key_stops_the_proxy_before_it_serves(store):
    with pytest.raises(ConfigError, match="api_key_env=NOT_SET_ANYWHERE"):
        async with calling(store, proxy_with("http://127.0.0.1:9/v1", api_key_env="NOT_SET_ANYWHERE")):
            pass


MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 2},
}
EVENTS = [
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 2},
    },
    {"type": "message_stop"},
]


async def test_anthropics_client_reaches_anthropic_itself_unchanged(store, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_UPSTREAM_KEY", "upstream-s3cret")
    asked = []

    async def anthropic(scope, receive, send):
        body = orjson.loads((await receive())["body"])
        asked.append((scope["path"], dict(scope["headers"]), body))
        if body.get("stream"):
            events = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in EVENTS]
            kind, data = b"text/event-stream", b"".join(events)
        else:
            kind, data = b"application/json", orjson.dumps(MESSAGE)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": data})

    async with serving_asgi(anthropic) as url:
        proxy = proxy_with(f"{url}/v1", upstream="anthropic", api_key_env="ANTHROPIC_UPSTREAM_KEY")
        async with serving(store, ScriptedEngine(), proxy=proxy) as (_, llm, attempt):
            root = llm.base_url.removesuffix("/v1")
            wanted = {"model": MODEL, "max_tokens": 9, "messages": HELLO}
            tools = [{"type": "web_search_20250305", "name": "web_search"}]
            async with AsyncAnthropic(base_url=root, api_key=llm.api_key, max_retries=0) as client:
                plain = await client.messages.create(**wanted, tools=tools)
                async with client.messages.stream(**wanted) as stream:
                    text = await stream.get_final_text()
            async with client_of(llm, max_retries=0) as other:
                assert (await ask(other)).choices[0].message.content == "hi"
                with pytest.raises(openai.BadRequestError, match="of the kind anthropic"):
                    await other.completions.create(model=MODEL, prompt="x")
            spans = await spans_of(store, attempt)
    assert plain.content[0].text == text == "hi"
    path, headers, body = asked[0]
    assert (path, headers[b"x-api-key"]) == ("/v1/messages", b"upstream-s3cret")
    assert body == {**wanted, "tools": tools}
    for span in spans[:2]:
        assert span.attributes[key.DIALECT] == "anthropic.messages"
        assert json.loads(span.attributes[key.OUTPUT_MESSAGES])[0]["content"] == "hi"
        assert span.attributes[key.OUTPUT_TOKENS] == 2
    assert len(asked) == 3


RESPONSE = {
    "id": "resp_2",
    "object": "response",
    "created_at": 1,
    "model": "gpt-x",
    "status": "completed",
    "output": [
        {
            "id": "ws_1",
            "type": "web_search_call",
            "status": "completed",
            "action": {"type": "search", "query": "q"},
        },
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "hi", "annotations": []}],
        },
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 3,
        "output_tokens": 2,
        "total_tokens": 5,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    },
}


async def test_openais_responses_reach_their_own_provider_unchanged_with_its_own_tools(store):
    asked = []

    async def provider(scope, receive, send):
        body = orjson.loads((await receive())["body"])
        asked.append((scope["path"], body))
        if body.get("stream"):
            begun = {**RESPONSE, "status": "in_progress", "output": [], "usage": None}
            events = [
                {"type": "response.created", "response": begun, "sequence_number": 0},
                {
                    "type": "response.output_text.delta",
                    "item_id": "msg_1",
                    "output_index": 1,
                    "content_index": 0,
                    "delta": "hi",
                    "logprobs": [],
                    "sequence_number": 1,
                },
                {"type": "response.completed", "response": RESPONSE, "sequence_number": 2},
            ]
            kind = b"text/event-stream"
            data = b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events)
        else:
            kind, data = b"application/json", orjson.dumps(RESPONSE)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": data})

    async with serving_asgi(provider) as url:
        proxy = proxy_with(f"{url}/v1", upstream="responses")
        async with calling(store, proxy) as (client, attempt, _):
            wanted = {
                "model": MODEL,
                "input": "hello",
                "tools": [{"type": "web_search"}],
                "previous_response_id": "resp_1",
            }
            plain = await client.responses.create(**wanted)
            stream = await client.responses.create(**wanted, stream=True)
            events = [event async for event in stream]
            spans = await spans_of(store, attempt)
    assert plain.output_text == "hi"
    assert [item.type for item in plain.output] == ["web_search_call", "message"]
    assert [event.type for event in events] == [
        "response.created",
        "response.output_text.delta",
        "response.completed",
    ]
    assert asked == [("/v1/responses", wanted), ("/v1/responses", {**wanted, "stream": True})]
    for span in spans:
        assert span.attributes[key.DIALECT] == "openai.responses"
        assert json.loads(span.attributes[key.OUTPUT_MESSAGES])[0]["content"] == "hi"
        assert span.attributes[key.OUTPUT_TOKENS] == 2


async def test_litellm_reaches_a_real_server_plain_streamed_and_refused(store, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "sk-very-s3cret")
    async with scripted_vllm() as (upstream, url):
        proxy = proxy_with(
            url, upstream="litellm", upstream_model="hosted_vllm/qwen", api_key_env="JUDGE_KEY"
        )
        async with calling(store, proxy) as (client, attempt, _):
            plain = await ask(client)
            text = await streamed_text(client)
            with pytest.raises(openai.BadRequestError, match="the prompt is too long") as caught:
                await ask(client, messages=[{"role": "user", "content": "fail"}])
            spans = await spans_of(store, attempt)
    expected = answer_of(upstream.requests[0])["choices"][0]
    assert plain.choices[0].message.content == text == expected["message"]["content"]
    assert [asked["model"] for asked in upstream.requests] == ["qwen"] * 3
    assert [span.status.code for span in spans] == ["ok", "ok", "error"]
    assert "sk-very-s3cret" not in f"{caught.value} {spans}"


async def test_a_server_killed_in_mid_stream_is_an_error_for_the_agent_and_a_part_on_the_record(store):
    waits = [{"role": "user", "content": "wait"}]
    async with (
        model_process() as process,
        model_process() as spare,
        calling(store, proxy_with(process.url, spare.url)) as (client, attempt, _),
    ):
        stream = await ask(client, messages=waits, stream=True)
        said = [(await anext(stream)).choices[0].delta.content for _ in range(3)]
        process.kill()
        spare.kill()
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            [chunk async for chunk in stream]
    (span,) = await spans_of(store, attempt)
    recorded = json.loads(span.attributes[key.OUTPUT_MESSAGES])[0]["content"]
    assert span.status.code == "error"
    assert recorded.startswith("".join(said))
    assert key.RESPONSE_TOKEN_IDS in span.attributes


async def test_no_connection_and_no_task_is_left_behind(store):
    before = asyncio.all_tasks()
    async with moody_server() as (upstream, url):
        port = urlsplit(url).port
        async with calling(store, proxy_with(url)) as (client, _, _):
            upstream.moods = [500, "cut", "garbage", 429, "stuck", "redirect"] * 3
            calls = [asyncio.create_task(ask(client, stream=bool(n % 2))) for n in range(24)]
            done, late = await asyncio.wait(calls, timeout=2)
            for call in late:
                call.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            for call in done:
                if call.exception() is None and hasattr(call.result(), "close"):
                    await call.result().close()
            assert (await ask(client)).choices[0].finish_reason == "stop"
    lines = psutil.Process().net_connections(
        "tcp"
    )  # one that nobody closes outlives the server, in CLOSE_WAIT
    assert [line for line in lines if line.raddr and line.raddr.port == port] == []
    assert asyncio.all_tasks() - before == set()
