"""Budgets, accounts, cache and replay over real HTTP, spoken to by the official clients."""

import asyncio
import json
from contextlib import asynccontextmanager

import anthropic
import httpx
import openai
import pytest
from openai import AsyncOpenAI
from served_proxy import HELLO, ScriptedEngine, client_of, serving, spans_of

from agl.proxy import LLMProxy
from agl.proxy.budgets import Budgets
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ProxyLLM, RolloutRequest
from agl.types import attributes as key

PRICES = {"policy": {"input": 100.0, "output": 1000.0}}
COST_OF_CALL = (3 * 100 + 3 * 1000) / 1e6
OF_REPLAY = (
    key.REPLAY,
    key.COST_USD,
    key.LATENCY_SECONDS,
    key.TIME_TO_FIRST_CHUNK,
    key.STREAM,
    key.UPSTREAM,
    key.DIALECT,
)
"""What the record of a replayed call says otherwise than the record of the first one."""


@pytest.fixture
def engine():
    return ScriptedEngine()


@pytest.fixture
async def store():
    async with InMemoryLightningStore() as opened:
        yield opened


@asynccontextmanager
async def attempt_with(store, server, **metadata):
    """One more attempt; yields its LLM and the attempt."""
    started = await store.start_rollout(RolloutRequest(task=1, run_id="demo", metadata=metadata))
    llm = ProxyLLM(base_url=server.url, model="policy", api_key=server.api_key)
    yield llm.for_attempt(started.rollout.rollout_id, started.attempt.attempt_id), started.attempt


@asynccontextmanager
async def one_more_attempt(store, engine, proxy):
    """A proxy of its own and an attempt; yields OpenAI's client and the attempt."""
    async with (
        serving(store, engine, proxy=proxy) as (server, _, _),
        attempt_with(store, server) as (llm, attempt),
        client_of(llm) as client,
    ):
        yield client, attempt


def proxy_with(**budgets):
    return LLMProxy(budgets=Budgets(**budgets), prices=PRICES)


async def ask(client, **asked):
    return await client.chat.completions.create(model="policy", messages=HELLO, **asked)


async def text_of(stream):
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


async def test_openais_client_is_told_which_budget_is_used_up_and_does_not_retry(store, engine):
    proxy = proxy_with(max_calls_per_rollout=1)
    async with serving(store, engine, proxy=proxy) as (_, llm, attempt), client_of(llm) as client:
        await ask(client)
        with pytest.raises(openai.RateLimitError) as caught:
            await ask(client)
        with pytest.raises(openai.RateLimitError):
            await ask(client, stream=True)
        spans = await spans_of(store, attempt)
    assert len(engine.requests) == 1
    assert caught.value.code == "budget_exceeded"
    assert caught.value.response.headers["x-should-retry"] == "false"
    expected = (
        f"budget max_calls of rollout {attempt.rollout_id} is used up: the limit is 1, 1 calls were made"
    )
    assert expected in caught.value.message
    refused = spans[1:]
    assert [span.attributes[key.ERROR_TYPE] for span in refused] == ["budget_exceeded"] * 2  # no retries
    assert expected in refused[0].status.description


async def test_anthropics_client_is_told_in_its_own_format(store, engine):
    proxy = proxy_with(max_tokens_per_rollout=100)
    async with serving(store, engine, proxy=proxy) as (_, llm, attempt):
        url = llm.base_url.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(base_url=url, api_key=llm.api_key) as client:
            with pytest.raises(anthropic.RateLimitError) as caught:
                await client.messages.create(model="policy", max_tokens=101, messages=HELLO)
            await client.messages.create(model="policy", max_tokens=100, messages=HELLO)
        spans = await spans_of(store, attempt)
    error = caught.value.body
    assert (error["type"], error["error"]["type"]) == ("error", "rate_limit_error")
    assert "budget max_tokens" in error["error"]["message"]
    assert [span.status.code for span in spans] == ["error", "ok"]


async def test_calls_side_by_side_are_never_one_too_many(store, engine):
    proxy = proxy_with(max_calls_per_rollout=5)
    engine.gate.clear()
    async with serving(store, engine, proxy=proxy) as (_, llm, _), client_of(llm) as client:
        calls = [asyncio.create_task(ask(client)) for _ in range(20)]
        done, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
        while len(done) < 15:
            done, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED, timeout=0.05)
        engine.gate.set()
        await asyncio.wait(waiting)
    assert sum(call.exception() is None for call in calls) == len(engine.requests) == 5


async def test_a_run_has_one_budget_of_cost_for_all_its_rollouts_also_after_a_restart(store, engine):
    proxy = proxy_with(max_cost_per_run=2.5 * COST_OF_CALL)
    async with one_more_attempt(store, engine, proxy) as (client, _):
        await ask(client)
    async with one_more_attempt(store, engine, proxy) as (client, attempt):
        await ask(client)
        await ask(client)
        with pytest.raises(openai.RateLimitError, match=r"max_cost of run demo.*0\.0099 USD were spent"):
            await ask(client)
        spans = await spans_of(store, attempt)
    assert [span.attributes.get(key.COST_USD) for span in spans] == [COST_OF_CALL, COST_OF_CALL, None]


async def test_a_budget_of_cost_refuses_a_model_whose_price_nobody_knows(store, engine):
    proxy = LLMProxy(budgets=Budgets(max_cost_per_rollout=1.0))
    async with serving(store, engine, proxy=proxy) as (_, llm, attempt), client_of(llm) as client:
        with pytest.raises(openai.BadRequestError, match="price of model 'policy' is not known"):
            await ask(client)
        (span,) = await spans_of(store, attempt)
    assert span.attributes[key.ERROR_TYPE] == "price_unknown"
    assert not engine.requests


async def test_a_client_that_leaves_gives_its_place_in_the_budget_back(store, engine):
    engine.gate.clear()
    proxy = proxy_with(max_tokens_per_rollout=10)
    async with serving(store, engine, proxy=proxy) as (_, llm, _), client_of(llm) as client:
        leaving = asyncio.create_task(ask(client, max_tokens=10))
        await engine.asked.wait()
        leaving.cancel()
        await engine.cancelled.wait()
        engine.gate.set()
        answer = await ask(client, max_tokens=10)
    assert answer.usage.total_tokens == 6


async def test_the_accounts_are_told_to_whoever_has_the_proxys_token(store, engine):
    proxy = LLMProxy(token="the-proxys-own-token", prices=PRICES)
    async with serving(store, engine, proxy=proxy) as (server, _, _), httpx.AsyncClient() as http:
        async with attempt_with(store, server) as (llm, attempt), client_of(llm) as client:
            await ask(client)
            agents_key = {"authorization": f"Bearer {llm.api_key}"}
        for path in ("/accounts", "/metrics"):
            assert (await http.get(server.url + path)).status_code == 401
            assert (await http.get(server.url + path, headers=agents_key)).status_code == 401
        http.headers["authorization"] = "Bearer the-proxys-own-token"
        everything = (await http.get(f"{server.url}/accounts")).json()
        one = (await http.get(f"{server.url}/accounts", params={"rollout_id": attempt.rollout_id})).json()
        metrics = (await http.get(f"{server.url}/metrics")).text
    assert everything["runs"]["demo"]["calls"] == one["calls"] == 1
    assert one["cost_usd"] == COST_OF_CALL
    assert one["mean_latency_seconds"] > 0
    assert 'agl_proxy_calls_total{agent="",end="ok",model="policy"} 1.0' in metrics


async def test_a_replay_answers_as_the_record_says_plain_and_streamed(store, engine):
    tools = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]
    async with serving(store, engine, proxy=proxy_with()) as (server, _, _):
        async with attempt_with(store, server) as (llm, attempt), client_of(llm) as client:
            plain = await ask(client, n=2, tools=tools)
            streamed = await text_of(await ask(client, stream=True, seed=1))
            recorded = await spans_of(store, attempt)
        async with (
            attempt_with(store, server, replay_of=attempt.rollout_id, replay_strict=True) as (llm, again),
            client_of(llm) as client,
        ):
            replayed = await ask(client, n=2, tools=tools)
            replayed_stream = await text_of(await ask(client, stream=True, seed=1))
            with pytest.raises(openai.ConflictError, match="the record has 2 calls"):
                await ask(client)
            spans = await spans_of(store, again)
    assert len(engine.requests) == 2
    assert replayed.model_dump() == plain.model_dump() | {"created": replayed.created}
    assert replayed_stream == streamed
    for span, original in zip(spans[:2], recorded, strict=True):
        assert (span.attributes[key.REPLAY], span.attributes[key.COST_USD]) == ("hit", 0.0)
        assert said(span) == said(original)
    assert spans[2].attributes[key.ERROR_TYPE] == "replay_differs"


def said(span):
    return {name: value for name, value in span.attributes.items() if name not in OF_REPLAY}


async def test_a_replay_crosses_delivery_and_ends_where_it_is_told(store, engine):
    async with serving(store, engine, proxy=proxy_with()) as (server, _, _):
        async with attempt_with(store, server) as (llm, attempt), client_of(llm) as client:
            plain = await ask(client)
            await ask(client)
        async with attempt_with(store, server, replay_of=attempt.rollout_id, replay_from_call=1) as (
            llm,
            again,
        ):
            async with client_of(llm) as client:
                streamed = await text_of(await ask(client, stream=True))
                fresh = await ask(client)
            spans = await spans_of(store, again)
    assert streamed == plain.choices[0].message.content
    assert fresh.choices[0].message.content == "hello 3.0"
    assert [span.attributes.get(key.REPLAY) for span in spans] == ["hit", None]


async def test_anthropics_client_is_replayed_too(store, engine):
    async def talk(llm):
        url = llm.base_url.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(base_url=url, api_key=llm.api_key) as client:
            asked = {"model": "policy", "max_tokens": 50, "messages": HELLO}
            plain = await client.messages.create(**asked)
            async with client.messages.stream(**asked) as stream:
                streamed = await stream.get_final_message()
        return [message.model_dump(exclude={"id"}) for message in (plain, streamed)]

    async with serving(store, engine, proxy=proxy_with()) as (server, _, _):
        async with attempt_with(store, server) as (llm, attempt):
            first = await talk(llm)
        async with attempt_with(store, server, replay_of=attempt.rollout_id) as (llm, _):
            second = await talk(llm)
    assert second == first
    assert len(engine.requests) == 2


async def test_a_thread_of_responses_is_replayed_too(store, engine):
    async def talk(llm):
        async with client_of(llm) as client:
            first = await client.responses.create(model="policy", input="hello")
            asked = {"model": "policy", "input": "and then?", "previous_response_id": first.id}
            async with client.responses.stream(**asked) as stream:
                return first.output_text, (await stream.get_final_response()).output_text

    async with serving(store, engine, proxy=proxy_with(max_calls_per_run=2)) as (server, _, _):
        async with attempt_with(store, server) as (llm, attempt):
            texts = await talk(llm)
            with pytest.raises(openai.RateLimitError, match="budget max_calls of run demo"):
                await talk(llm)
        metadata = {"replay_of": attempt.rollout_id, "replay_strict": True}
        async with attempt_with(store, server, **metadata) as (llm, again):
            assert await talk(llm) == texts
            spans = await spans_of(store, again)
    assert len(engine.requests) == 2
    assert [span.attributes[key.REPLAY] for span in spans] == ["hit", "hit"]


async def test_an_equal_request_is_answered_once_across_proxies_on_one_store(store, engine):
    for _ in range(2):
        proxy = LLMProxy(cache="repeatable", prices=PRICES)
        async with one_more_attempt(store, engine, proxy) as (client, attempt):
            greedy = await ask(client, temperature=0)
            await ask(client)
            spans = await spans_of(store, attempt)
    assert greedy.choices[0].message.content == "hello 1.0"
    assert [span.attributes.get(key.CACHE) for span in spans] == ["hit", None]
    assert json.loads(spans[0].attributes[key.OUTPUT_MESSAGES])[0]["content"] == "hello 1.0"
    assert len(engine.requests) == 3


async def test_a_repeat_by_the_client_is_answered_before_any_budget_is_asked(store, engine):
    proxy = proxy_with(max_calls_per_rollout=1)
    async with serving(store, engine, proxy=proxy) as (_, llm, _):
        client = AsyncOpenAI(
            base_url=llm.base_url, api_key=llm.api_key, default_headers={"idempotency-key": "one"}
        )
        async with client:
            first, second = await ask(client), await ask(client)
    assert first.id == second.id
    assert len(engine.requests) == 1
