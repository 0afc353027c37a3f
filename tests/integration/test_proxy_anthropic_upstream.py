"""Every other client on a server that speaks Anthropic's format alone sees what it sees on one that speaks chat.

The server of Anthropic's is a second proxy, whose Messages are tested with Anthropic's own clients, before the scripted
server of chats: so the same call is put to it straight and by way of Anthropic's format.
"""

from __future__ import annotations

import asyncio
import json

import openai
import pytest
import pytest_asyncio
from anthropic import AsyncAnthropic
from framework_clients import AgentsSdk, Curl, LangChain
from openai import AsyncOpenAI
from openai_clients import OpenAIAsync, OpenAISync
from scripted_vllm import scripted_vllm
from served_proxy import spans_of
from tcp_relay import TLS

from agl.proxy import LLMProxy
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ModelEndpoint, ProxyLLM, RolloutRequest
from agl.types import attributes as key

CLIENTS = {
    "openai async": OpenAIAsync(),
    "openai sync": OpenAISync(),
    "langchain": LangChain(),
    "agents sdk": AgentsSdk(),
    "curl": Curl(),
}
CELLS = [
    (name, feature) for name, client in CLIENTS.items() for feature in client.features if feature != "n>1"
]
HELLO = [{"role": "user", "content": "hello"}]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(autouse=True)
def few_authorities(monkeypatch):
    """Nobody speaks TLS here; the certificates of all authorities take each new client a tenth of a second."""
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS))


async def attempt_at(store, server):
    started = await store.start_rollout(RolloutRequest(task=1))
    ids = started.attempt.rollout_id, started.attempt.attempt_id
    llm = ProxyLLM(base_url=server.url, model="policy", api_key=server.api_key)
    return llm.for_attempt(*ids), started.attempt


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chain():
    """The scripted server, the LLM that reaches it straight, and one that reaches it in Anthropic's format."""
    async with scripted_vllm() as (vllm, url), InMemoryLightningStore() as store:
        chats = LLMProxy(endpoints={"vllm": ModelEndpoint(model="policy", urls=(url,))}, max_retries=0)
        async with chats.serving(store, None) as inner:
            straight, _ = await attempt_at(store, inner)
            claude = ModelEndpoint(model="policy", upstream="anthropic", urls=(straight.base_url,))
            proxy = LLMProxy(endpoints={"claude": claude}, max_retries=0)
            async with proxy.serving(store, None) as outer:
                yield vllm, store, straight, outer


def said_to(asked):
    """What a server is told; arguments as values, because Anthropic's format has no text of them, calls by number."""
    messages = json.loads(json.dumps(asked["messages"]))
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    numbers = {call["id"]: number for number, call in enumerate(calls)}
    for call in calls:
        call["id"] = numbers[call["id"]]
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    for message in messages:
        if message["role"] == "tool":
            message["tool_call_id"] = numbers[message["tool_call_id"]]
    return messages, asked.get("tools"), asked.get("tool_choice", "auto")


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize(("name", "feature"), CELLS)
async def test_a_call_by_way_of_anthropics_format_shows_its_client_what_a_chat_server_does(
    chain, name, feature, stream
):
    (vllm, store, straight, outer), client = chain, CLIENTS[name]
    llm, attempt = await attempt_at(store, outer)
    vllm.forget()
    shown = await client.ask(straight, feature, stream=stream)
    chats = list(vllm.requests)
    vllm.forget()
    translated = await client.ask(llm, feature, stream=stream)
    if len(chats) > 1:  # the second prompt holds the first answer's arguments, spaced in Anthropic's way
        translated.usage = shown.usage = None
    assert translated == shown
    assert [said_to(asked) for asked in vllm.requests] == [said_to(asked) for asked in chats]
    spans = await spans_of(store, attempt)
    assert len(spans) == len(chats)
    for span in spans:
        assert (span.status.code, span.attributes[key.UPSTREAM]) == ("ok", "claude")
        assert span.attributes[key.MISSING_IDS_CAUSE] == "upstream_without_ids"
        assert span.attributes[key.DIALECT].startswith("openai.")


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_a_refusal_and_a_break_are_the_chat_clients_own_errors(chain, stream):
    _, store, _, outer = chain
    llm, attempt = await attempt_at(store, outer)
    client = CLIENTS["openai async"]
    with pytest.raises(openai.BadRequestError, match="the prompt is too long"):
        await client.say(llm, "fail at once", stream=stream)
    if stream:
        with pytest.raises(openai.APIError, match="the engine died"):
            await client.say(llm, "break half-way", stream=True)
    spans = await spans_of(store, attempt)
    assert [span.attributes[key.ERROR_TYPE] for span in spans] == ["400", "500"][: len(spans)]


async def test_a_chat_client_that_leaves_cancels_the_servers_work(chain):
    vllm, store, _, outer = chain
    llm, _ = await attempt_at(store, outer)
    vllm.forget()
    await CLIENTS["openai async"].leave(llm, "wait for me")
    async with asyncio.timeout(30):
        await vllm.left.wait()


async def test_what_anthropic_cannot_do_is_refused_by_name(chain):
    _, store, _, outer = chain
    llm, attempt = await attempt_at(store, outer)
    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key, max_retries=0) as client:
        for name, value in {"n": 2, "logprobs": True, "frequency_penalty": 0.5}.items():
            with pytest.raises(openai.BadRequestError, match=name):
                await client.chat.completions.create(model="policy", messages=HELLO, **{name: value})
    assert [json.loads(span.attributes[key.INPUT_MESSAGES]) for span in await spans_of(store, attempt)] == [
        HELLO
    ] * 3


async def test_tokens_are_counted_without_a_call_of_the_model(chain):
    vllm, store, straight, outer = chain
    llm, _ = await attempt_at(store, outer)
    vllm.forget()
    asked = {"model": "policy", "messages": HELLO, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    counts = []
    for door in (straight, llm):
        async with AsyncAnthropic(base_url=door.anthropic_base_url, api_key=door.api_key) as client:
            counts.append((await client.messages.count_tokens(**asked)).input_tokens)
    assert counts[0] == counts[1] > 0
    assert [request["max_tokens"] for request in vllm.requests] == [1, 1]  # the chat server has no other way
