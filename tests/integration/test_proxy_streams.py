"""Streams through the proxy over real HTTP: the SDKs, engines that sample, clients that die, lines that break."""

import asyncio
import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anthropic
import httpx
import openai
import orjson
import pytest
from answer_chunks import chunks_from_answer
from openai import OpenAI
from openai_exchange import DONE, sse_data
from served_proxy import HELLO, ScriptedEngine, choice_of, client_of, serving, spans_of
from tiny_policies import byte_tokenizer, write_llama

from agl.errors import InferenceError
from agl.inference.transformers import TransformersEngine
from agl.proxy import LLMProxy
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.types import ProxyLLM, RolloutRequest
from agl.types import attributes as key
from agl.types.packing import ids_from_packed
from agl.types.policy import Policy

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CLOCKS = (key.LATENCY_SECONDS, key.TIME_TO_FIRST_CHUNK, key.RESPONSE_ID, key.STREAM)
"""Attributes that no two calls share, and the one that tells them apart."""


@pytest.fixture
def engine():
    return ScriptedEngine()


@pytest.fixture
async def store():
    async with InMemoryLightningStore() as opened:
        yield opened


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    tokenizer = byte_tokenizer(TEMPLATE, vocabulary=300, texts=["SELECT name FROM employees"])
    shape = {"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256}
    folder = write_llama(tmp_path_factory.mktemp("policy"), tokenizer, intermediate_size=64, **shape)
    return Policy(path=str(folder), device="cpu")


class EndlessEngine:
    """Streams for ever, a chunk of 64 KiB each time it is asked."""

    model = "policy"

    def __init__(self):
        self.num_chunks = 0
        self.begun = asyncio.Event()
        self.closed = asyncio.Event()

    async def stream_chat(self, request):
        (first, *_) = chunks_from_answer(
            {"id": "c", "choices": [choice_of(0, "x", [1])], "model": "policy", "prompt_token_ids": [1]}
        )
        first["choices"][0] |= {"delta": {"role": "assistant", "content": "x" * 65536}, "finish_reason": None}
        try:
            while True:
                self.num_chunks += 1
                self.begun.set()
                yield first
                await asyncio.sleep(0)
        finally:
            self.closed.set()

    async def complete_chat(self, request):
        raise NotImplementedError


async def text_of(stream):
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


async def test_openais_client_streams_unmodified(store, engine):
    async with serving(store, engine) as (_, llm, attempt), client_of(llm) as client:
        options = {"include_usage": True}
        stream = await client.chat.completions.create(
            model=llm.model, messages=HELLO, stream=True, stream_options=options
        )
        chunks = [chunk async for chunk in stream]
        async with client.chat.completions.stream(model=llm.model, messages=HELLO) as events:
            helped = await events.get_final_completion()
        first, _ = await spans_of(store, attempt)
    said = [chunk for chunk in chunks if chunk.choices]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in said) == "hello 1.0"
    assert [chunk.choices[0].finish_reason for chunk in said][-1] == "stop"
    assert {chunk.choices[0].logprobs for chunk in said} == {None}
    assert all(chunk.model_extra == {} for chunk in chunks)
    assert chunks[-1].usage.total_tokens == 6
    assert helped.choices[0].message.content == "hello 2.0"
    assert ids_from_packed(first.attributes[key.RESPONSE_TOKEN_IDS]) == [1, 100, 2]


async def test_openais_blocking_client_streams_unmodified(store, engine):
    async with serving(store, engine) as (_, llm, attempt):

        def talk():
            with (
                OpenAI(base_url=llm.base_url, api_key=llm.api_key) as client,
                client.chat.completions.create(model=llm.model, messages=HELLO, stream=True) as stream,
            ):
                return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

        assert await asyncio.to_thread(talk) == "hello 1.0"
        assert len(await spans_of(store, attempt)) == 1


async def test_anthropics_client_runs_unmodified(store, engine):
    async with (
        serving(store, engine, proxy=LLMProxy(token="t0ken")) as (_, llm, attempt),
        anthropic.AsyncAnthropic(base_url=llm.anthropic_base_url, api_key=llm.api_key) as client,
    ):
        asked = {"model": llm.model, "max_tokens": 9, "messages": HELLO}
        plain = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            streamed = await stream.get_final_message()
        count = await client.messages.count_tokens(model=llm.model, messages=HELLO)
        names = [model.id async for model in client.models.list()]
        spans = await spans_of(store, attempt)
    assert (plain.content[0].text, streamed.content[0].text) == ("hello 1.0", "hello 2.0")
    assert (plain.stop_reason, streamed.usage.output_tokens) == ("end_turn", 3)
    assert (count.input_tokens, names) == (3, ["policy"])
    assert [ids_from_packed(span.attributes[key.RESPONSE_TOKEN_IDS])[0] for span in spans] == [1, 2]


async def test_responses_and_text_completions_stream_unmodified(store, engine):
    async with serving(store, engine) as (_, llm, attempt), client_of(llm) as client:
        async with client.responses.stream(model=llm.model, input="hello") as stream:
            first = await stream.get_final_response()
        second = await client.responses.create(model=llm.model, input="and?", previous_response_id=first.id)
        spans = await spans_of(store, attempt)
    assert (first.output_text, second.output_text) == ("hello 1.0", "and? 2.0")
    assert [message["role"] for message in json.loads(spans[1].attributes[key.INPUT_MESSAGES])] == [
        "user",
        "assistant",
        "user",
    ]


@pytest.mark.parametrize("asked", [{}, {"n": 2, "temperature": 0.7}, {"stop": ["e"]}, {"max_tokens": 1}])
async def test_streamed_and_plain_calls_of_a_seeded_engine_have_equal_records(store, policy, asked):
    async with (
        TransformersEngine(policy) as engine,
        serving(store, engine) as (_, llm, attempt),
        client_of(llm) as client,
    ):
        asked = {"model": llm.model, "messages": HELLO, "seed": 7, "max_tokens": 24, **asked}
        plain = await client.chat.completions.create(**asked)
        stream = await client.chat.completions.create(**asked, stream=True)
        texts = [""] * len(plain.choices)
        async for chunk in stream:
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        spans = [dict(span.attributes) for span in await spans_of(store, attempt)]
    assert texts == [choice.message.content for choice in plain.choices]
    assert key.TIME_TO_FIRST_CHUNK in spans[1]
    for attributes in spans:
        for clock in CLOCKS:
            attributes.pop(clock, None)
    assert spans[0] == spans[1]
    ids = [ids_from_packed(spans[0][key.of_choice(key.RESPONSE_TOKEN_IDS, i)]) for i in range(len(texts))]
    assert sum(map(len, ids)) == spans[0][key.OUTPUT_TOKENS] == plain.usage.completion_tokens


async def test_text_completions_of_an_engine_are_recorded_alike(store, policy):
    async with (
        TransformersEngine(policy) as engine,
        serving(store, engine) as (_, llm, attempt),
        client_of(llm) as client,
    ):
        asked = {"model": llm.model, "prompt": "SELECT", "seed": 7, "max_tokens": 24}
        plain = await client.completions.create(**asked, logprobs=0)
        stream = await client.completions.create(**asked, stream=True)
        text = "".join([chunk.choices[0].text async for chunk in stream])
        spans = [dict(span.attributes) for span in await spans_of(store, attempt)]
    assert text == plain.choices[0].text
    assert len(plain.choices[0].logprobs.tokens) == plain.usage.completion_tokens
    for attributes in spans:
        for clock in CLOCKS:
            attributes.pop(clock, None)
    assert spans[0] == spans[1]
    assert json.loads(spans[0][key.INPUT_MESSAGES]) == [{"role": "user", "content": "SELECT"}]


async def test_an_engine_that_fails_in_mid_stream_raises_in_the_client(store, engine, caplog):
    async with serving(store, engine) as (_, llm, attempt), client_of(llm, max_retries=0) as client:

        async def broken(request):
            for chunk in list(chunks_from_answer(await ScriptedEngine.complete_chat(engine, request)))[:2]:
                yield chunk
            raise InferenceError("the engine died", status=503)

        engine.stream_chat = broken
        stream = await client.chat.completions.create(model=llm.model, messages=HELLO, stream=True)
        with pytest.raises(openai.APIError, match="the engine died"):
            await text_of(stream)
        async with httpx.AsyncClient() as http:
            with pytest.raises(httpx.RemoteProtocolError):  # no client takes it for the whole answer
                await http.post(
                    f"{llm.base_url}/chat/completions",
                    json={"model": llm.model, "messages": HELLO, "stream": True},
                )
        spans = await spans_of(store, attempt)
    assert [span.attributes[key.ERROR_TYPE] for span in spans] == ["503", "503"]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    assert ids_from_packed(spans[0].attributes[key.RESPONSE_TOKEN_IDS]) == [1, 100]


async def test_a_client_that_hangs_up_in_mid_stream_cancels_the_engine_and_leaves_a_record(store):
    engine = EndlessEngine()
    async with serving(store, engine) as (_, llm, attempt), client_of(llm) as client:
        stream = await client.chat.completions.create(model=llm.model, messages=HELLO, stream=True)
        async for _ in stream:
            break
        await stream.close()
        async with asyncio.timeout(5):
            await engine.closed.wait()
    (span,) = await spans_of(store, attempt)
    assert span.attributes[key.ERROR_TYPE] == "cancelled"
    assert json.loads(span.attributes[key.OUTPUT_MESSAGES])[0]["content"].startswith("xxx")


async def test_a_reader_that_stalls_fills_no_memory(store):
    engine = EndlessEngine()
    async with serving(store, engine) as (server, llm, attempt), httpx.AsyncClient() as http:
        url = httpx.URL(llm.base_url)
        _, writer = await asyncio.open_connection("127.0.0.1", url.port, limit=1024)
        body = orjson.dumps({"model": llm.model, "messages": HELLO, "stream": True})
        head = f"POST {url.path}/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await engine.begun.wait()
        seen, unchanged = 0, 0
        while unchanged < 20:  # the engine's loop is this one: while it may go on, it does
            await http.get(f"{server.url}/health")
            unchanged = unchanged + 1 if engine.num_chunks == seen else 0
            seen = engine.num_chunks
        assert seen * 65536 < 32 * 2**20  # what sockets hold; nothing else
        writer.transport.abort()
        async with asyncio.timeout(5):
            await engine.closed.wait()
    (span,) = await spans_of(store, attempt)
    assert span.attributes[key.ERROR_TYPE] == "cancelled"


@pytest.mark.parametrize(
    ("stream", "mark"), [(True, '"finish_reason":"stop"'), (True, "[DONE]"), (False, "HTTP/1.1 200")]
)
async def test_200_agents_that_kill_themselves_at_the_end_leave_200_records(tmp_path, stream, mark):
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(SqliteLightningStore(str(tmp_path / "store.sqlite")))
        server = await stack.enter_async_context(LLMProxy().serving(store, ScriptedEngine()))
        llm = ProxyLLM(base_url=server.url, model="policy")
        await store.add_resources({"llm": llm})
        attempts, calls = [], []
        for number in range(200):
            attempt = (await store.start_rollout(RolloutRequest(task=number))).attempt
            attempts.append(attempt)
            base = llm.for_attempt(attempt.rollout_id, attempt.attempt_id).base_url
            messages = [{"role": "user", "content": f"agent {number}"}]
            body = json.dumps({"model": "policy", "messages": messages, "stream": stream})
            calls.append([f"{httpx.URL(base).path}/chat/completions", body, mark])
        died = await _run_dying_agents({"port": httpx.URL(server.url).port, "calls": calls})
        assert died == 200
        for number, attempt in enumerate(attempts):
            (span,) = await spans_of(store, attempt)
            said = json.loads(span.attributes[key.OUTPUT_MESSAGES])[0]["content"]
            assert said.startswith(f"agent {number} ")
            assert span.status.code == "ok"
            assert ids_from_packed(span.attributes[key.RESPONSE_TOKEN_IDS])[1:] == [100, 2]
            assert span.attributes[key.FINISH_REASONS] == ["stop"]


async def _run_dying_agents(order):
    script = Path(__file__).parents[1] / "support" / "dying_agents.py"
    pipe = asyncio.subprocess.PIPE
    agents = await asyncio.create_subprocess_exec(sys.executable, "-S", script, stdin=pipe, stdout=pipe)
    out, _ = await agents.communicate(json.dumps(order).encode())
    return int(out)


@pytest.mark.parametrize("stream", [False, True])
async def test_with_1_in_5_answers_lost_each_call_is_sampled_and_recorded_once(store, engine, stream):
    async with (
        serving(store, engine) as (server, llm, attempt),
        losing_relay(server.url, every=5) as (url, lost),
    ):
        texts = []
        lossy = llm.model_copy(update={"base_url": llm.base_url.replace(server.url, url)})
        async with client_of(lossy, max_retries=6) as client:

            async def call_twice(number):
                """Two equal calls, both intended."""
                said = [{"role": "user", "content": f"call {number}"}]
                for _ in range(2):
                    answer = await client.chat.completions.create(
                        model=llm.model, messages=said, stream=stream
                    )
                    texts.append(await text_of(answer) if stream else answer.choices[0].message.content)

            await asyncio.gather(*map(call_twice, range(20)))
        spans = await spans_of(store, attempt)
    assert len(lost) >= 40 // 5
    assert len(engine.requests) == len(spans) == 40
    recorded = [json.loads(span.attributes[key.OUTPUT_MESSAGES])[0]["content"] for span in spans]
    assert sorted(texts) == sorted(recorded)
    assert len(set(texts)) == 40


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_anthropics_client_repeats_lost_calls_and_none_is_sampled_twice(store, engine, stream):
    async with (
        serving(store, engine) as (server, llm, attempt),
        losing_relay(server.url, every=3) as (url, lost),
    ):
        root = llm.anthropic_base_url.replace(server.url, url)
        asked = {"model": "policy", "max_tokens": 9, "messages": HELLO}
        texts = []
        async with anthropic.AsyncAnthropic(base_url=root, api_key=llm.api_key, max_retries=6) as client:
            for _ in range(8):  # equal calls, each intended
                if not stream:
                    texts.append((await client.messages.create(**asked)).content[0].text)
                    continue
                async with client.messages.stream(**asked) as events:
                    texts.append(await events.get_final_text())
        spans = await spans_of(store, attempt)
    assert len(lost) >= 8 // 3
    assert len(engine.requests) == len(spans) == 8
    assert texts == [f"hello {number}.0" for number in range(1, 9)]


@asynccontextmanager
async def losing_relay(url, *, every):
    """A relay that waits for each answer to be whole, and then loses one in so many with its connection."""
    port, answered, lost = httpx.URL(url).port, [], []

    async def relay(reader, writer):
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while head := await _head(reader):
                up_writer.write(head + await reader.readexactly(_length(head)))
                begun = await _head(up_reader)
                chunked = b"transfer-encoding: chunked" in begun.lower()
                rest = up_reader.readuntil(b"0\r\n\r\n") if chunked else up_reader.readexactly(_length(begun))
                answer = begun + await rest
                answered.append(answer)
                if len(answered) % every == 0:
                    lost.append(answer)
                    writer.transport.abort()
                    return
                writer.write(answer)
        finally:
            for one in (writer, up_writer):
                one.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0, limit=2**20)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", lost


async def _head(reader):
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


def _length(head):
    return int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])


async def test_200_streams_at_once_are_whole_and_recorded(store, engine):
    async with serving(store, engine) as (_, llm, attempt), httpx.AsyncClient() as http:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(limits=limits, timeout=60) as http:

            async def call(number):
                said = [{"role": "user", "content": f"call {number}"}]
                asked = {"model": llm.model, "messages": said, "stream": True}
                return sse_data((await http.post(f"{llm.base_url}/chat/completions", json=asked)).content)

            streams = await asyncio.gather(*(call(number) for number in range(200)))
        spans = await spans_of(store, attempt)
    assert all(stream[-1] == DONE for stream in streams)
    assert len({stream[0]["id"] for stream in streams}) == len(spans) == 200
    assert sorted(span.sequence_id for span in spans) == list(range(1, 201))


async def test_keys_open_their_attempt_alone_and_are_nowhere_to_be_read(store, engine, caplog):
    caplog.set_level("DEBUG")
    async with serving(store, engine, proxy=LLMProxy(token="t0ken-of-proxy")) as (server, llm, attempt):
        other = (await store.start_rollout(RolloutRequest(task=2))).attempt
        proxy_llm = ProxyLLM(base_url=server.url, model="policy", api_key=server.api_key)
        foreign = proxy_llm.for_attempt(other.rollout_id, other.attempt_id)
        assert llm.api_key not in (server.api_key, foreign.api_key)
        async with client_of(llm) as client:
            await client.chat.completions.create(model=llm.model, messages=HELLO)
            stream = await client.chat.completions.create(model=llm.model, messages=HELLO, stream=True)
            await text_of(stream)
        async with client_of(llm.model_copy(update={"api_key": foreign.api_key})) as client:
            with pytest.raises(openai.PermissionDeniedError, match="another attempt's"):
                await client.chat.completions.create(model=llm.model, messages=HELLO)
        async with client_of(llm.model_copy(update={"api_key": "none"})) as client:
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()
        wrong = anthropic.AsyncAnthropic(base_url=llm.anthropic_base_url, api_key=foreign.api_key)
        with pytest.raises(anthropic.PermissionDeniedError, match="another attempt's"):
            await wrong.messages.create(model=llm.model, max_tokens=5, messages=HELLO)
        await store.update_attempt(attempt.rollout_id, attempt.attempt_id, status="succeeded", reward=1.0)
        async with client_of(llm) as client:
            with pytest.raises(openai.ConflictError, match="is over"):
                await _until_refused(client, llm)
        spans = await spans_of(store, attempt)
    text = "".join(span.model_dump_json() for span in spans)
    logged = "".join(record.getMessage() for record in caplog.records if record.name.startswith("agl"))
    for secret in ("t0ken-of-proxy", llm.api_key, foreign.api_key):
        assert secret not in text
        assert secret not in logged


async def _until_refused(client, llm):
    """Call until the proxy has looked at the attempt again, which it does every second."""
    while True:
        await client.chat.completions.create(model=llm.model, messages=HELLO)


@pytest.mark.parametrize(
    ("mode", "sampling"),
    [("train", {"temperature": 1.0, "top_p": 1.0, "max_tokens": 8}), ("val", {"temperature": 0.0})],
)
async def test_each_modes_sampling_is_forced_in_every_dialect(store, engine, mode, sampling):
    async with LLMProxy().serving(store, engine) as server:
        resources = await store.add_resources(
            {"llm": ProxyLLM(base_url=server.url, model="policy", sampling=sampling)}
        )
        request = RolloutRequest(task=1, mode=mode, resources_id=resources.resources_id)
        attempt = (await store.start_rollout(request)).attempt
        llm = resources.resources["llm"].for_attempt(attempt.rollout_id, attempt.attempt_id)
        loose = {"temperature": 0.3, "top_p": 0.5}
        async with client_of(llm) as client:
            await client.chat.completions.create(
                model="gpt-x", messages=HELLO, max_completion_tokens=99, **loose
            )
            await client.responses.create(model="gpt-x", input="hello", max_output_tokens=99, **loose)
        async with anthropic.AsyncAnthropic(base_url=llm.anthropic_base_url, api_key="x") as client:
            await client.messages.create(model="claude-x", max_tokens=99, messages=HELLO, extra_body=loose)
    for asked in engine.requests:
        assert {name: asked[name] for name in sampling} == sampling
        assert asked["model"] == "policy"
        limits = [
            name for name in ("max_tokens", "max_completion_tokens", "max_output_tokens") if name in asked
        ]
        assert limits == ["max_tokens"] or "max_tokens" not in sampling
    assert len(engine.requests) == 3
