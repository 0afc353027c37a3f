"""Streamed calls, from a client without sockets to an upstream that says one chunk at a time."""

import asyncio
import logging

import orjson
import pytest
from answer_chunks import chunks_from_answer
from openai_exchange import DONE, sse_data

from agl.errors import InferenceError, StoreUnavailableError
from agl.proxy.app import ProxyApp
from agl.proxy.budgets import Budgets
from agl.proxy.prices import Prices
from agl.proxy.upstream import NATIVE, UPSTREAM, NativeEvent
from agl.types import attributes as key
from agl.types.packing import floats_from_packed, ids_from_packed

PREFIX = "/rollout/r1/attempt/a1"
STREAM = {"model": "policy", "messages": [{"role": "user", "content": "hello"}], "stream": True}
SETTINGS = {
    "secret": "s3cret",
    "needs_key": False,
    "max_body_bytes": 1000,
    "upstream_timeout_seconds": 5.0,
    "prices": Prices(),  # shared: reading the map of all models takes longer than a call
}
CLOCKS = {key.LATENCY_SECONDS, key.TIME_TO_FIRST_CHUNK}
"""Attributes that no two calls share."""


class SpokenUpstream:
    """Says what the test gives it, one chunk at a time: ``say`` returns once the proxy asks for the next."""

    model = "policy"

    def __init__(self):
        self.requests = []
        self.said = asyncio.Queue()
        self.closed = asyncio.Event()
        self.num_taken = 0

    async def complete_chat(self, request):
        raise NotImplementedError

    async def stream_chat(self, request):
        self.requests.append(request)
        try:
            while (said := await self.said.get()) is not None:
                if isinstance(said, Exception):
                    raise said
                self.num_taken += 1
                yield said
                self.said.task_done()
        finally:
            self.closed.set()

    async def say(self, *chunks):
        for chunk in chunks:
            self.said.put_nowait(chunk)
        await self.said.join()

    def tell(self, *chunks):
        """Say without waiting that it is heard; None ends the stream."""
        for chunk in chunks:
            self.said.put_nowait(chunk)


@pytest.fixture
def speaker():
    return SpokenUpstream()


@pytest.fixture
def app(store, speaker):
    return ProxyApp(store, speaker, **SETTINGS)


@pytest.fixture
def chunks(answer_of):
    """Two chunks with the text, the second with its end, and the usage."""
    return list(chunks_from_answer(answer_of(1)))


def text_of(reply):
    """The text that a client of chat completions has so far."""
    events = [event for event in sse_data(reply.content) if event != DONE and event.get("choices")]
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events)


def begin(client, chat=STREAM, **headers):
    return asyncio.create_task(client.chat(chat, **headers))


async def test_each_chunk_reaches_the_client_before_the_next_is_said(client, speaker, chunks):
    call = begin(client)
    await speaker.say(chunks[0])
    assert (client.reply.status, text_of(client.reply)) == (200, "answe")
    assert client.reply.headers["content-type"].startswith("text/event-stream")
    speaker.tell(*chunks[1:], None)
    reply = await call
    assert (text_of(reply), sse_data(reply.content)[-1], reply.complete) == ("answer 1.0", DONE, True)


async def test_the_record_is_durable_before_the_client_sees_the_end(client, store, speaker, chunks):
    store.gate.clear()
    call = begin(client)
    await speaker.say(*chunks)
    speaker.tell(None)
    await speaker.closed.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert text_of(client.reply) == "answer 1.0"
    assert b'"finish_reason":"stop"' not in client.reply.content
    assert store.spans == []
    store.gate.set()
    reply = await call
    assert b'"finish_reason":"stop"' in reply.content
    assert reply.headers["x-request-id"] == store.spans[0].span_id


async def test_streamed_and_plain_calls_have_equal_records(store, upstream, client_of):
    app = ProxyApp(store, upstream, **SETTINGS)
    await client_of(app).chat({**STREAM, "stream": False, "n": 2})
    upstream.requests.clear()
    await client_of(app).chat({**STREAM, "n": 2})
    plain, streamed = (dict(span.attributes) for span in store.spans)
    assert streamed.pop(key.STREAM) is True
    assert streamed[key.TIME_TO_FIRST_CHUNK] >= 0
    for clock in CLOCKS:
        plain.pop(clock, None), streamed.pop(clock, None)
    assert streamed == plain
    assert ids_from_packed(streamed["agl.response_token_ids.1"]) == [11, 2]


async def test_a_store_that_fails_ends_the_stream_with_an_error(
    client, client_of, app, store, speaker, chunks
):
    call = begin(client)
    await speaker.say(chunks[0])
    store.failure = StoreUnavailableError("disk full")
    speaker.tell(*chunks[1:], None)
    reply = await call
    assert sse_data(reply.content)[-1]["error"]["code"] == "store_unavailable"
    assert not reply.complete
    store.failure = None
    again = await client_of(app).chat(STREAM, x_stainless_retry_count="1")
    assert (text_of(again), again.complete) == ("answer 1.0", True)
    assert (len(speaker.requests), len(store.spans)) == (1, 1)


async def test_a_failure_before_the_first_chunk_is_a_plain_error(client, store, speaker):
    error = {"error": {"message": "busy", "code": "busy"}}
    speaker.tell(InferenceError("busy", status=429, body=error))
    reply = await begin(client)
    assert (reply.status, reply.json, reply.complete) == (429, error, True)
    assert reply.headers["content-type"] == "application/json"
    assert store.spans[0].attributes[key.ERROR_TYPE] == "429"


async def test_a_failure_in_mid_stream_is_told_cut_off_and_recorded_with_what_came(
    client, store, speaker, chunks
):
    call = begin(client)
    await speaker.say(chunks[0])
    speaker.tell(InferenceError("the engine died", status=503))
    reply = await call
    assert sse_data(reply.content)[-1]["error"]["message"] == "the engine died"
    assert not reply.complete
    (span,) = store.spans
    assert (span.status.code, span.attributes[key.ERROR_TYPE]) == ("error", "503")
    assert orjson.loads(span.attributes[key.OUTPUT_MESSAGES]) == [{"role": "assistant", "content": "answe"}]
    assert ids_from_packed(span.attributes[key.RESPONSE_TOKEN_IDS]) == [10]
    assert span.attributes[key.FINISH_REASONS] == ["unknown"]


async def test_a_stream_that_breaks_off_without_an_end_is_a_failure(client, store, speaker, chunks):
    speaker.tell(chunks[0], None)
    reply = await begin(client)
    assert "before the answer was whole" in sse_data(reply.content)[-1]["error"]["message"]
    assert not reply.complete
    assert store.spans[0].attributes[key.ERROR_TYPE] == "502"


async def test_a_fault_in_mid_stream_shows_the_client_nothing_of_itself(
    client, store, speaker, chunks, caplog
):
    with caplog.at_level(logging.ERROR):
        speaker.tell(chunks[0], ZeroDivisionError("secret detail"))
        reply = await begin(client)
    assert b"secret detail" not in reply.content
    assert sse_data(reply.content)[-1]["error"]["code"] == "ZeroDivisionError"
    assert "ZeroDivisionError" in caplog.text
    assert store.spans[0].status.code == "error"


async def test_a_chunk_of_another_shape_is_the_upstreams_failure(client, store, speaker, chunks):
    speaker.tell(chunks[0], {"choices": "x"})
    reply = await begin(client)
    assert sse_data(reply.content)[-1]["error"]["code"] == "502"
    assert speaker.closed.is_set()


async def test_a_stream_that_takes_too_long_ends_in_an_error(store, speaker, client_of, chunks):
    app = ProxyApp(store, speaker, **{**SETTINGS, "upstream_timeout_seconds": 0.02})
    speaker.tell(chunks[0])
    reply = await begin(client_of(app))
    assert sse_data(reply.content)[-1]["error"]["code"] == "timeout"
    assert speaker.closed.is_set()
    assert store.spans[0].attributes[key.ERROR_TYPE] == "timeout"


async def test_a_client_that_leaves_cancels_the_stream_and_what_came_is_recorded(
    client, app, store, speaker, chunks
):
    call = begin(client)
    await speaker.say(chunks[0])
    client.leave()
    await call
    await speaker.closed.wait()
    await app.close(grace_seconds=5.0)
    (span,) = store.spans
    assert span.attributes[key.ERROR_TYPE] == "cancelled"
    assert orjson.loads(span.attributes[key.OUTPUT_MESSAGES]) == [{"role": "assistant", "content": "answe"}]
    assert ids_from_packed(span.attributes[key.PROMPT_TOKEN_IDS]) == [7, 8, 9]
    assert floats_from_packed(span.attributes[key.RESPONSE_LOGPROBS]) == [-0.5]


async def test_a_client_that_leaves_once_the_model_has_ended_loses_no_record(
    client, app, store, speaker, chunks
):
    call = begin(client)
    await speaker.say(*chunks[:2])  # all but the usage
    client.leave()
    await call
    speaker.tell(chunks[2], None)
    await app.close(grace_seconds=5.0)
    (span,) = store.spans
    assert (span.status.code, span.attributes[key.OUTPUT_TOKENS]) == ("ok", 2)


async def test_a_slow_reader_holds_the_upstream_back(client, speaker, chunks, answer_of):
    client.reading.clear()
    call = begin(client)
    speaker.tell(*chunks[:1] * 50, *chunks[1:], None)
    for _ in range(200):
        await asyncio.sleep(0)
    assert speaker.num_taken == 1
    client.reading.set()
    assert text_of(await call) == "answe" * 50 + "r 1.0"


async def test_a_slow_reader_that_leaves_cancels_the_stream(client, store, app, speaker, chunks):
    client.reading.clear()
    call = begin(client)
    speaker.tell(*chunks[:1] * 50)
    for _ in range(20):
        await asyncio.sleep(0)
    client.leave()
    await call
    await app.close(grace_seconds=5.0)
    assert speaker.closed.is_set()
    assert store.spans[0].attributes[key.ERROR_TYPE] == "cancelled"


async def test_a_repeat_of_an_ended_stream_is_answered_from_its_record(
    client, client_of, app, store, speaker, chunks
):
    speaker.tell(*chunks, None)
    first = await begin(client)
    again = await client_of(app).chat(STREAM, x_stainless_retry_count="1")
    assert text_of(again) == text_of(first) == "answer 1.0"
    assert sse_data(again.content)[-1] == DONE
    assert again.headers["content-type"].startswith("text/event-stream")
    assert again.headers["x-request-id"] == first.headers["x-request-id"]
    assert (len(speaker.requests), len(store.spans)) == (1, 1)


async def test_a_repeat_keeps_the_stream_of_a_vanished_client_alive(
    client, client_of, app, store, speaker, chunks
):
    first = begin(client)
    await speaker.say(chunks[0])
    repeat = begin(client_of(app), x_stainless_retry_count="1")
    await asyncio.sleep(0)
    client.leave()
    await first
    speaker.tell(*chunks[1:], None)
    assert text_of(await repeat) == "answer 1.0"
    assert (len(speaker.requests), [span.status.code for span in store.spans]) == (1, ["ok"])


async def test_a_repeat_after_the_stream_was_cancelled_is_asked_anew(
    client, client_of, app, store, speaker, chunks
):
    first = begin(client)
    await speaker.say(chunks[0])
    client.leave()
    await first
    await speaker.closed.wait()
    speaker.tell(*chunks, None)
    assert text_of(await begin(client_of(app), x_stainless_retry_count="1")) == "answer 1.0"
    assert [span.status.code for span in store.spans] == ["error", "ok"]


async def test_two_equal_streams_are_two_records(client, client_of, app, store, speaker, chunks):
    speaker.tell(*chunks, None, *chunks, None)
    await begin(client)
    await begin(client_of(app))
    assert (len(speaker.requests), len(store.spans)) == (2, 2)


async def test_a_proxy_that_stops_tells_its_streams(client, app, store, speaker, chunks):
    call = begin(client)
    await speaker.say(chunks[0])
    await app.close(grace_seconds=0.0)
    reply = await call
    assert sse_data(reply.content)[-1]["error"]["code"] == "stopping"
    assert not reply.complete
    assert store.spans[0].attributes[key.ERROR_TYPE] == "cancelled"


async def test_an_ended_stream_leaves_no_task_behind(client, speaker, chunks):
    speaker.tell(*chunks, None)
    await begin(client)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_stream_of_all_choices_ends_when_each_has(client, store, speaker, answer_of):
    speaker.tell(*chunks_from_answer(answer_of(1, 3)), None)
    reply = await begin(client, {**STREAM, "n": 3})
    assert reply.complete
    assert ids_from_packed(store.spans[0].attributes["agl.response_token_ids.2"]) == [12, 2]


async def test_each_dialect_tells_of_a_failure_in_its_own_words(client, client_of, app, speaker, chunks):
    anthropic = {**STREAM, "max_tokens": 9}
    speaker.tell(chunks[0], InferenceError("the engine died", status=529))
    reply = await client.chat(anthropic, path=f"{PREFIX}/v1/messages", anthropic_version="2023-06-01")
    assert b"event: error" in reply.content
    assert sse_data(reply.content)[-1]["type"] == "error"
    for path, headers in ((f"{PREFIX}/v1/messages", {}), ("/nowhere", {"anthropic_version": "2023-06-01"})):
        refused = await client_of(app).chat({"max_tokens": 1}, path=path, **headers)
        assert refused.json["type"] == "error"
        assert refused.status in (400, 404)


async def test_a_response_goes_on_from_the_one_before(client_of, store, upstream):
    app = ProxyApp(store, upstream, **SETTINGS)
    path = f"{PREFIX}/v1/responses"
    first = await client_of(app).chat({"model": "policy", "input": "hello"}, path=path)
    second = {"model": "policy", "input": "and?", "previous_response_id": first.json["id"]}
    await client_of(app).chat(second, path=path)
    said = [(message["role"], message["content"]) for message in upstream.requests[1]["messages"]]
    assert said == [("user", "hello"), ("assistant", "answer 1.0"), ("user", "and?")]
    restarted = ProxyApp(store, upstream, **SETTINGS)
    await client_of(restarted).chat(second | {"input": "still?"}, path=path)
    again = [(message["role"], message["content"]) for message in upstream.requests[2]["messages"]]
    assert again == [*said[:2], ("user", "still?")]
    unknown = await client_of(app).chat({**second, "previous_response_id": "resp_x"}, path=path)
    assert (unknown.status, unknown.json["error"]["code"]) == (400, "previous_response_not_found")


class Passing:
    """An upstream that chooses, and passes calls through; ``events`` are of the client's own format."""

    model, models, policy_version = "policy", ("policy", "judge"), 7

    def __init__(self, answer, events):
        self.answer, self.events, self.contexts, self.requests = answer, events, [], []

    def model_of_call(self, model, *, agent, mode):
        return "judge" if agent == "critic" else None

    async def complete_chat(self, request, *, context=None):
        self.requests.append(request)
        self.contexts.append(context)
        return self.answer | {NATIVE: b'{"native": 1}', UPSTREAM: "provider"}

    async def stream_chat(self, request, *, context=None):
        self.contexts.append(context)
        for chunk, (data, last) in zip(chunks_from_answer(self.answer), self.events, strict=True):
            yield chunk | {NATIVE: NativeEvent(data=data, last=last), UPSTREAM: "provider"}

    async def count_tokens(self, request, *, context=None):
        return None

    async def embed(self, body, *, context=None):
        return {"object": "list", "data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 2}}


@pytest.fixture
def passing(answer_of):
    return Passing(answer_of(1), [(b"data: 1\n\n", False), (b"data: 2\n\n", False), (b"data: end\n\n", True)])


async def test_a_call_that_is_passed_through_is_answered_as_the_provider_did(store, passing, client_of):
    app = ProxyApp(store, passing, **SETTINGS)
    plain = await client_of(app).chat(
        {**STREAM, "stream": False}, openai_beta="x", authorization="Bearer k3y"
    )
    assert plain.content == b'{"native": 1}'
    streamed = await client_of(app).chat(STREAM)
    assert streamed.content == b"data: 1\n\ndata: 2\n\ndata: end\n\n"
    (context, _), (span, _) = passing.contexts, store.spans
    assert (context.rollout_id, context.mode, context.dialect.name) == ("r1", "train", "openai.chat")
    assert (context.native["model"], context.forced, context.headers) == (
        "policy",
        {"model": "policy"},
        {"openai-beta": "x"},
    )
    assert span.attributes[key.UPSTREAM] == "provider"
    assert span.attributes[key.RESPONSE_ID] == "chatcmpl-1"


async def test_the_end_that_is_passed_through_waits_for_the_record(store, passing, client_of):
    client = client_of(ProxyApp(store, passing, **SETTINGS))
    store.gate.clear()
    call = begin(client)
    for _ in range(50):
        await asyncio.sleep(0)
    assert client.reply.content == b"data: 1\n\n"  # the second says why the model has ended
    store.gate.set()
    assert (await call).complete


async def test_a_call_that_is_routed_uses_the_routes_model(store, passing, client_of):
    client = client_of(ProxyApp(store, passing, **SETTINGS))
    await client.chat({**STREAM, "stream": False}, path=f"{PREFIX}/agent/critic/v1/chat/completions")
    assert passing.requests[0]["model"] == "judge"
    assert store.spans[0].name == "chat judge"


async def test_embeddings_are_passed_on_and_recorded(store, passing, client_of, upstream):
    asked = {"model": "e5", "input": "x"}
    path = f"{PREFIX}/agent/a/v1/embeddings"
    reply = await client_of(ProxyApp(store, passing, **SETTINGS)).chat(asked, path=path)
    assert reply.json["data"] == [{"embedding": [0.5]}]
    (span,) = store.spans
    assert (span.name, span.attributes[key.INPUT_TOKENS], span.attributes[key.AGENT]) == (
        "embeddings e5",
        2,
        "a",
    )
    refused = await client_of(ProxyApp(store, upstream, **SETTINGS)).chat(asked, path=path)
    assert (refused.status, refused.json["error"]["code"]) == (404, "no_embeddings")


async def test_embeddings_count_against_budgets_and_cost(store, passing, client_of):
    asked = {"model": "e5", "input": "x"}
    path = f"{PREFIX}/v1/embeddings"
    settings = {
        "budgets": Budgets(max_calls_per_rollout=1),
        "prices": Prices({"e5": {"input": 1.0, "output": 0.0}}),
    }
    app = ProxyApp(store, passing, **{**SETTINGS, **settings})
    await client_of(app).chat(asked, path=path)
    refused = await client_of(app).chat(asked, path=path)
    assert (refused.status, refused.json["error"]["code"]) == (429, "budget_exceeded")
    first, second = store.spans
    assert first.attributes[key.COST_USD] == 2e-6
    assert (second.status.code, second.attributes[key.ERROR_TYPE]) == ("error", "budget_exceeded")
    chat = await client_of(app).chat({**STREAM, "stream": False})
    assert (chat.status, chat.json["error"]["type"]) == (429, "rate_limit_error")


async def test_tokens_are_counted_as_the_call_would_be_asked(client_of, store, upstream):
    asked = {"model": "claude", "messages": [{"role": "user", "content": "hello"}]}
    client = client_of(ProxyApp(store, upstream, **SETTINGS))
    reply = await client.chat(asked, path=f"{PREFIX}/v1/messages/count_tokens")
    assert reply.json == {"input_tokens": 3}
    assert upstream.requests[0]["model"] == "policy"
    assert store.spans == []


async def test_weights_that_are_swapped_during_a_call_are_both_recorded(store, client_of, passing, answer_of):
    answer = passing.answer
    del answer["policy_version"]
    client = client_of(ProxyApp(store, passing, **SETTINGS))
    original = passing.complete_chat

    async def swap(request, *, context=None):
        passing.policy_version = 8
        return await original(request, context=context)

    passing.complete_chat = swap
    await client.chat({**STREAM, "stream": False})
    read = store.spans[0].attributes
    assert (read[key.POLICY_VERSION], read[key.POLICY_VERSION_END]) == (7, 8)


async def test_a_client_that_does_not_wait_for_embeddings_gives_them_up(store, passing, client_of):
    client, asked, cancelled = (
        client_of(ProxyApp(store, passing, **SETTINGS)),
        asyncio.Event(),
        asyncio.Event(),
    )

    async def embed(body, *, context=None):
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    passing.embed = embed
    call = asyncio.create_task(client.chat({"model": "e5"}, path=f"{PREFIX}/v1/embeddings"))
    await asked.wait()
    client.leave()
    await call
    await cancelled.wait()
    assert (client.reply.status, store.spans) == (0, [])


async def test_embeddings_that_take_too_long_are_a_504(store, passing, client_of):
    client = client_of(ProxyApp(store, passing, **{**SETTINGS, "upstream_timeout_seconds": 0.01}))
    passing.embed = lambda body, *, context=None: asyncio.Event().wait()
    reply = await client.chat({"model": "e5"}, path=f"{PREFIX}/v1/embeddings")
    assert (reply.status, reply.json["error"]["code"]) == (504, "504")
