"""Every client against the proxy over real HTTP: what its objects show, and that streams leave the same record.

Behind the proxy is a server that speaks as vLLM does, whose tokens end inside characters and whose streams are cut
inside characters, tool arguments and events; then a small policy that is really sampled.
"""

import asyncio
import json

import pytest
import pytest_asyncio
from anthropic_clients import AnthropicAsync, AnthropicSync
from framework_clients import AgentsSdk, Curl, LangChain
from openai import AsyncOpenAI
from openai_clients import OpenAIAsync, OpenAISync
from proxy_clients import Said, Weather
from scripted_vllm import CITIES, TEXT, answer_of, scripted_vllm, text_of_choice
from served_proxy import spans_of
from tcp_relay import TLS

from agl.proxy import LLMProxy
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ModelEndpoint, ProxyLLM, RolloutRequest
from agl.types import attributes as key
from agl.types.packing import floats_from_packed, ids_from_packed

CLIENTS = {
    "openai async": OpenAIAsync(),
    "openai sync": OpenAISync(),
    "anthropic async": AnthropicAsync(),
    "anthropic sync": AnthropicSync(),
    "langchain": LangChain(),
    "agents sdk": AgentsSdk(),
    "curl": Curl(),
}
CELLS = [(name, feature) for name, client in CLIENTS.items() for feature in client.features]
OF_TIME = (key.LATENCY_SECONDS, key.TIME_TO_FIRST_CHUNK)
PIECE_BYTES = {"openai async": 1, "agents sdk": 1, "anthropic async": 1}
PATIENCE = 30.0  # seconds for what takes milliseconds on an idle machine

pytestmark = pytest.mark.asyncio(loop_scope="module")
every_client = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)


@pytest.fixture(autouse=True)
def few_authorities(monkeypatch):
    """Nobody speaks TLS here; the certificates of all authorities take each new client a tenth of a second."""
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS))


class AwaitedStore(InMemoryLightningStore):
    """Tells when it has got spans: nobody waits for the record of a call that was left."""

    def __init__(self):
        super().__init__()
        self.written = asyncio.Event()

    async def add_many_spans(self, spans):
        stored = await super().add_many_spans(spans)
        self.written.set()
        return stored


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served():
    """The scripted server, and the proxy before it with its store."""
    async with scripted_vllm() as (vllm, url), AwaitedStore() as store:
        proxy = LLMProxy(endpoints={"vllm": ModelEndpoint(model="policy", urls=(url,))}, max_retries=0)
        async with proxy.serving(store, None) as server:
            yield vllm, store, server


@pytest_asyncio.fixture(loop_scope="module")
async def attempt(served):
    """The scripted server, the LLM of a new attempt, and a function that returns the attempt's spans."""
    vllm, store, server = served
    vllm.forget()
    store.written.clear()
    started = await store.start_rollout(RolloutRequest(task=1))
    ids = started.attempt.rollout_id, started.attempt.attempt_id
    llm = ProxyLLM(base_url=server.url, model="policy", api_key=server.api_key).for_attempt(*ids)

    async def recorded():
        async with asyncio.timeout(PATIENCE):
            await store.written.wait()
        return await spans_of(store, started.attempt)

    return vllm, llm, recorded


@pytest.mark.parametrize(("name", "feature"), CELLS)
async def test_a_client_is_shown_the_answer_and_its_streams_leave_the_record_of_plain_calls(
    attempt, name, feature
):
    (vllm, llm, recorded), client = attempt, CLIENTS[name]
    vllm.piece_bytes = PIECE_BYTES.get(name, 7)
    plain = await client.ask(llm, feature, stream=False)
    streamed = await client.ask(llm, feature, stream=True)
    spans = await recorded()
    answers = [answer_of(asked) for asked in vllm.requests]
    count = len(answers) // 2
    assert plain == expected(client, feature, answers[:count])
    assert streamed == plain
    assert len(spans) == len(answers) == 2 * count
    for span, answer in zip(spans, answers, strict=True):
        assert_is_record_of(span, answer)
    records = [record_of(span) for span in spans]
    assert records[:count] == records[count:]
    streams = [span.attributes.get(key.STREAM, False) for span in spans]
    is_streamed = (name, feature) != ("langchain", "n>1")  # it refuses to stream several choices
    assert streams == [False] * count + [is_streamed] * count


@every_client
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_the_servers_refusal_is_the_clients_own_error_and_is_recorded(attempt, client, stream):
    _, llm, recorded = attempt
    with pytest.raises(client.failures) as caught:
        await client.say(llm, "fail at once", stream=stream)
    (span,) = await recorded()
    assert "the prompt is too long: 9000 tokens" in str(caught.value)
    assert getattr(caught.value, "status_code", 400) == 400
    assert (span.status.code, span.attributes[key.ERROR_TYPE]) == ("error", "400")
    assert key.RESPONSE_TOKEN_IDS not in span.attributes


@every_client
async def test_a_server_that_fails_half_way_is_an_error_to_the_client_and_what_came_is_recorded(
    attempt, client
):
    vllm, llm, recorded = attempt
    with pytest.raises(client.failures) as caught:
        await client.say(llm, "break half-way", stream=True)
    (span,) = await recorded()
    assert "the engine died" in str(caught.value)
    assert span.attributes[key.ERROR_TYPE] == "500"
    assert_holds_the_first_part(span, answer_of(vllm.requests[0]))


@every_client
async def test_a_client_that_leaves_a_stream_cancels_the_servers_work_and_leaves_what_came(attempt, client):
    vllm, llm, recorded = attempt
    await client.leave(llm, "wait for me")
    async with asyncio.timeout(PATIENCE):
        await vllm.left.wait()
    (span,) = await recorded()
    assert (span.status.code, span.attributes[key.ERROR_TYPE]) == ("error", "cancelled")
    assert_holds_the_first_part(span, answer_of(vllm.requests[0]))


@every_client
async def test_a_client_that_leaves_a_plain_call_cancels_the_servers_work(attempt, client):
    vllm, llm, recorded = attempt
    call = asyncio.create_task(client.say(llm, "wait for me", stream=False))
    async with asyncio.timeout(PATIENCE):
        await vllm.asked.wait()
        call.cancel()
        await vllm.left.wait()
    with pytest.raises(asyncio.CancelledError):
        await call
    (span,) = await recorded()
    assert (span.status.code, span.attributes[key.ERROR_TYPE]) == ("error", "cancelled")
    assert key.RESPONSE_TOKEN_IDS not in span.attributes


async def test_a_client_that_asks_for_ids_and_logprobs_gets_them_streamed_and_not(attempt):
    vllm, llm, _ = attempt
    asked = {"model": llm.model, "messages": [{"role": "user", "content": "hello"}], "logprobs": True, "n": 2}
    asked["extra_body"] = {"return_token_ids": True}
    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
        plain = await client.chat.completions.create(**asked)
        chunks = [chunk async for chunk in await client.chat.completions.create(**asked, stream=True)]
    answer = answer_of(vllm.requests[0])
    assert plain.model_extra["prompt_token_ids"] == answer["prompt_token_ids"]
    prompts = [chunk.model_extra.get("prompt_token_ids") for chunk in chunks]
    assert [prompt for prompt in prompts if prompt is not None] == [answer["prompt_token_ids"]]
    for index, choice in enumerate(answer["choices"]):
        parts = [part for chunk in chunks for part in chunk.choices if part.index == index]
        streamed_ids = [token for part in parts for token in part.model_extra.get("token_ids") or []]
        assert streamed_ids == plain.choices[index].model_extra["token_ids"] == choice["token_ids"]
        entries = [entry for part in parts if part.logprobs for entry in part.logprobs.content]
        assert entries == plain.choices[index].logprobs.content
        assert [entry.to_dict() for entry in entries] == choice["logprobs"]["content"]


async def test_a_client_is_shown_nothing_that_only_the_record_needs(attempt):
    vllm, llm, _ = attempt
    asked = {"model": llm.model, "messages": [{"role": "user", "content": "hello"}]}
    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
        answer = await client.chat.completions.create(**asked)
        chunks = [chunk async for chunk in await client.chat.completions.create(**asked, stream=True)]
    assert [told.model_extra for told in (answer, *chunks)] == [{}] * (1 + len(chunks))
    assert answer.choices[0].model_extra == {"stop_reason": None}  # vLLM's own word to its clients
    assert all(choice.logprobs is None for told in (answer, *chunks) for choice in told.choices)
    assert all(asked["return_token_ids"] for asked in vllm.requests)


def expected(client, feature, answers):
    """What a client of this kind is to show of what the server said."""
    usages = [answer["usage"] for answer in answers]
    said = Said(
        finish=client.ends["tools" if "tools" in feature else "text"],
        usage=(
            sum(usage["prompt_tokens"] for usage in usages),
            sum(usage["completion_tokens"] for usage in usages),
        ),
    )
    if "tools" in feature:
        cities = CITIES if feature == "parallel tools" else CITIES[:1]
        said.calls = [("weather", {"city": city}) for city in cities]
        if isinstance(client, AgentsSdk):  # it runs the tools and asks again
            said.texts = ["tools said: " + " and ".join(f"sunny in {city}" for city in cities)]
    elif feature == "structured":
        said.forms = [Weather(city=CITIES[0], degrees=7)]
        said.texts = [answers[0]["choices"][0]["message"]["content"]]
    else:
        said.texts = [text_of_choice(index) for index in range(2 if feature == "n>1" else 1)]
    return said


def record_of(span):
    """What must be the same of two equal calls."""
    told = {name: value for name, value in span.attributes.items() if name not in (*OF_TIME, key.STREAM)}
    return span.name, span.kind, span.status, told


def assert_is_record_of(span, answer):
    """The span holds just what the server sampled."""
    told = span.attributes
    assert span.status.code == "ok"
    assert ids_from_packed(told[key.PROMPT_TOKEN_IDS]) == answer["prompt_token_ids"]
    messages = json.loads(told[key.OUTPUT_MESSAGES])
    for index, choice in enumerate(answer["choices"]):
        ids = ids_from_packed(told[key.of_choice(key.RESPONSE_TOKEN_IDS, index)])
        logprobs = floats_from_packed(told[key.of_choice(key.RESPONSE_LOGPROBS, index)])
        assert ids == choice["token_ids"]
        assert logprobs == [entry["logprob"] for entry in choice["logprobs"]["content"]]
        assert messages[index]["content"] == choice["message"]["content"]
        assert messages[index].get("tool_calls", []) == choice["message"]["tool_calls"]
    assert told[key.FINISH_REASONS] == [choice["finish_reason"] for choice in answer["choices"]]
    assert told[key.INPUT_TOKENS] == answer["usage"]["prompt_tokens"]
    assert told[key.OUTPUT_TOKENS] == answer["usage"]["completion_tokens"]
    assert told[key.RESPONSE_ID] == answer["id"]


def assert_holds_the_first_part(span, answer):
    """The span holds what had come of an answer, and no more."""
    told, (choice,) = span.attributes, answer["choices"]
    ids = ids_from_packed(told[key.RESPONSE_TOKEN_IDS])
    assert 0 < len(ids) < len(choice["token_ids"])
    assert ids == choice["token_ids"][: len(ids)]
    logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    assert floats_from_packed(told[key.RESPONSE_LOGPROBS]) == logprobs[: len(ids)]
    (message,) = json.loads(told[key.OUTPUT_MESSAGES])
    assert TEXT.startswith(message["content"])
    assert message["content"]
    assert ids_from_packed(told[key.PROMPT_TOKEN_IDS]) == answer["prompt_token_ids"]
