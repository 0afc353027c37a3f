"""The proxy over real sockets before model servers that send what they should not.

Whatever comes, the answer is an error in the client's own format and never the proxy's own failure, the record says
what happened, nothing is left open, and the next call is answered.
"""

import asyncio
import json
from contextlib import asynccontextmanager
from random import Random

import httpx
import orjson
import psutil
import pytest
import pytest_asyncio
from openai_exchange import sse_data
from scripted_vllm import answer_of, chunks_of
from scripted_wire import event, event_stream, http, json_answer, nested, scripted_wire
from served_proxy import spans_of

from agl.inference.external import ExternalEngine
from agl.proxy import LLMProxy
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ModelEndpoint, ProxyLLM, RolloutRequest
from agl.types import attributes as key

HELLO = [{"role": "user", "content": "hello"}]
CALLS = {
    "/chat/completions": {"model": "policy", "messages": HELLO},
    "/completions": {"model": "policy", "prompt": "hello"},
    "/responses": {"model": "policy", "input": "hello"},
    "/messages": {"model": "policy", "max_tokens": 9, "messages": HELLO},
}
SIDE_CALLS = {
    "/messages/count_tokens": {"model": "policy", "messages": HELLO},
    "/embeddings": {"model": "policy", "input": "hello"},
}
GOOD = answer_of({"model": "policy", "messages": HELLO})
CHUNKS = list(map(event, chunks_of({"model": "policy", "messages": HELLO})))
HALF = CHUNKS[: len(CHUNKS) // 2]
LIMITS = {"timeout_seconds": 0.4, "connect_seconds": 5.0}
PATIENCE = 30.0

NO_HTTP = {
    "nothing": (b"", "close"),
    "a reset": (b"", "reset"),
    "no HTTP": (b"\x16\x03\x01\x00 SSH-2.0-x\r\n\r\n", "close"),
    "another protocol": (b"HTTP/9.9 abc\r\n\r\n", "close"),
    "half a head": (b"HTTP/1.1 200 OK\r\ncontent-le", "close"),
    "a head without end": (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000, "close"),
    "a huge header": (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 2_000_000 + b"\r\n\r\n", "close"),
    "a length that is none": (b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello", "close"),
    "two lengths": (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!", "close"),
    "a huge length": (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nhello", "close"),
    "half a body": (b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{", "close"),
    "half a body and a reset": (b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{", "reset"),
    "a chunk that is none": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n", "close"),
    "half a chunk": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\n{", "close"),
    "a packed body that is none": (http(b"{}", headers=b"content-encoding: gzip\r\n"), "close"),
    "an unknown packing": (http(b"{}", headers=b"content-encoding: zip\r\n"), "close"),
    "a redirect": (http(b"", status=302, headers=b"location: http://127.0.0.1:1/\r\n"), "keep"),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", "close"),
    "an early hint and no more": (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3, "close"),
    "another protocol's turn": (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n", "close"),
}
NO_ANSWER = {
    "no JSON": http(b"hello"),
    "half of JSON": http(b'{"choices": ['),
    "a page": http(b"<html></html>", kind=b"text/html"),
    "no UTF-8": http(b'{"choices": [{"message": {"content": "\xff"}}]}'),
    "nothing": http(b""),
    "a list": json_answer([1]),
    "null": json_answer(None),
    "no choices": json_answer({"id": "x"}),
    "no choice": json_answer({"choices": []}),
    "choices that are text": json_answer({"choices": "x"}),
    "a choice without message": json_answer({"choices": [{"message": None}]}),
    "JSON without end": http(nested(300)),
    "JSON beyond any parser": http(nested(5000)),
}
NO_STREAM = {
    "no event": event_stream(b"hello\n\n"),
    "no JSON": event_stream(b"data: hello\n\n"),
    "half an event": event_stream(b"".join(HALF)[:-10]),
    "half a stream": event_stream(*HALF),
    "half a stream that says it is done": event_stream(*HALF, b"data: [DONE]\n\n"),
    "done at once": event_stream(b"data: [DONE]\n\n"),
    "a list": event_stream(event([1])),
    "a choice that is none": event_stream(event({"choices": [5]})),
    "a delta that is none": event_stream(event({"choices": [{"index": 0, "delta": 5}]})),
    "no UTF-8": event_stream(*HALF, b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n'),
    "JSON without end": event_stream(*HALF, b"data: " + nested(300) + b"\n\n"),
    "two streams in one": event_stream(*(b"".join(pair) for pair in zip(HALF, HALF[::-1], strict=True))),
    "two events in one": event_stream(HALF[0][:40] + HALF[1] + HALF[0][40:]),
    "zeros": event_stream(b"\0" * 4000),
    "a whole answer": json_answer(GOOD),
    "a page": http(b"<html></html>", kind=b"text/html"),
}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def serving_between(store, **settings):
    """Yields a server of scripted bytes and the proxy before it; on the way out all must have been let go of."""
    fds, tasks = psutil.Process().num_fds(), len(asyncio.all_tasks())
    async with scripted_wire() as (wire, url):
        endpoint = ModelEndpoint(model="policy", urls=(url,), **{**LIMITS, **settings})
        proxy = LLMProxy(endpoints={"wire": endpoint}, max_retries=0)
        async with proxy.serving(store, None) as server:
            yield wire, server
        async with asyncio.timeout(PATIENCE):
            await wire.all_closed.wait()
    await asyncio.sleep(0)  # a cancelled task ends in the next round of the loop
    assert len(asyncio.all_tasks()) == tasks, asyncio.all_tasks()
    assert psutil.Process().num_fds() == fds


@asynccontextmanager
async def attempt_at(store, server):
    """Yields a new attempt's base URL, a client, and the attempt."""
    started = await store.start_rollout(RolloutRequest(task=1))
    ids = started.attempt.rollout_id, started.attempt.attempt_id
    llm = ProxyLLM(base_url=server.url, model="policy", api_key=server.api_key).for_attempt(*ids)
    async with httpx.AsyncClient() as client:
        yield llm.base_url, client, started.attempt


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store():
    async with InMemoryLightningStore() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(store):
    async with serving_between(store) as between:
        yield between


@pytest_asyncio.fixture(loop_scope="module")
async def line(store, served):
    """A server of scripted bytes, and before it a base URL of the proxy, a client and the attempt."""
    wire, server = served
    async with attempt_at(store, server) as (base_url, client, attempt):
        yield wire, base_url, client, attempt


def assert_is_error_of(path, body):
    """An error as the client of this endpoint reads it."""
    told = orjson.loads(body)
    assert isinstance(told["error"]["message"], str)
    assert told["error"]["message"]
    assert isinstance(told["error"]["type"], str)
    assert (told.get("type") == "error") == path.startswith("/messages")


async def assert_serves_on(wire, base_url, client):
    """The next call is answered as if nothing had been."""
    wire.reply, wire.then = [json_answer(GOOD)], "keep"
    reply = await client.post(f"{base_url}/chat/completions", json=CALLS["/chat/completions"])
    assert reply.json()["choices"][0]["message"]["content"] == GOOD["choices"][0]["message"]["content"]


@pytest.mark.parametrize(("reply", "then"), NO_HTTP.values(), ids=NO_HTTP)
async def test_a_server_that_does_not_speak_http_is_a_502_in_every_format(store, line, reply, then):
    wire, base_url, client, attempt = line
    wire.reply, wire.then = [reply], then
    for path, body in {**CALLS, **SIDE_CALLS}.items():
        answer = await client.post(base_url + path, json=body)
        assert answer.status_code == 502, (path, answer.text)
        assert_is_error_of(path, answer.content)
        if path in CALLS:
            streamed = await client.post(base_url + path, json={**body, "stream": True})
            assert streamed.status_code == 502, (path, streamed.text)
            assert_is_error_of(path, streamed.content)
    await assert_serves_on(wire, base_url, client)
    spans = await spans_of(store, attempt)
    causes = [span.attributes.get(key.ERROR_TYPE) for span in spans]
    assert causes == ["502"] * 2 * len(CALLS) + [None]


@pytest.mark.parametrize("reply", NO_ANSWER.values(), ids=NO_ANSWER)
async def test_an_answer_that_is_none_is_a_502_in_every_format(store, line, reply):
    wire, base_url, client, attempt = line
    wire.reply, wire.then = [reply], "keep"
    for path, body in {**CALLS, "/messages/count_tokens": SIDE_CALLS["/messages/count_tokens"]}.items():
        answer = await client.post(base_url + path, json=body)
        assert answer.status_code == 502, (path, answer.text)
        assert_is_error_of(path, answer.content)
    await assert_serves_on(wire, base_url, client)
    spans = await spans_of(store, attempt)
    assert [span.status.code for span in spans] == ["error"] * len(CALLS) + ["ok"]


@pytest.mark.parametrize("reply", NO_STREAM.values(), ids=NO_STREAM)
async def test_a_stream_that_is_none_or_breaks_is_an_error_in_every_format(store, line, reply):
    wire, base_url, client, attempt = line
    wire.reply, wire.then = [reply], "close"
    for path, body in CALLS.items():
        status, received, is_whole = await streamed(client, base_url + path, body)
        if status == 200:
            assert not is_whole, (path, received)
            assert_is_error_of(path, error_event(received))
        else:
            assert status == 502, (path, received)
            assert_is_error_of(path, received)
    await assert_serves_on(wire, base_url, client)
    spans = await spans_of(store, attempt)
    assert [span.status.code for span in spans] == ["error"] * len(CALLS) + ["ok"]
    assert {span.attributes.get(key.ERROR_TYPE) for span in spans[:-1]} == {"502"}


@pytest.mark.parametrize(
    "usage", ["x", [1], {"prompt_tokens": "x"}, {"prompt_tokens": -5, "completion_tokens": 2**62}]
)
async def test_a_usage_that_cannot_be_is_not_counted(store, served, line, usage):
    (_, server), (wire, base_url, client, attempt) = served, line
    wire.then = "keep"
    for path, asked in {**CALLS, "/embeddings": SIDE_CALLS["/embeddings"]}.items():
        wire.reply = [json_answer({**GOOD, "choices": [{**GOOD["choices"][0], "text": "x"}], "usage": usage})]
        answer = await client.post(base_url + path, json=asked)
        assert answer.status_code in (200, 502), (path, answer.text)
    told = [
        span.attributes.get(name)
        for span in await spans_of(store, attempt)
        for name in (key.INPUT_TOKENS, key.OUTPUT_TOKENS)
    ]
    assert all(count is None or 0 <= count < 1000 for count in told), told
    assert (await client.get(f"{server.url}/accounts")).json()["total"]["input_tokens"] >= 0


async def test_a_server_that_never_answers_is_a_504_and_one_that_stops_half_way_ends_the_stream(store):
    async with (
        serving_between(store, timeout_seconds=0.2) as (wire, server),
        attempt_at(store, server) as (base_url, client, attempt),
    ):
        wire.then = "hang"
        for path, body in CALLS.items():
            for stream in (False, True):
                answer = await client.post(base_url + path, json={**body, "stream": stream})
                assert answer.status_code == 504, (path, answer.text)
                assert_is_error_of(path, answer.content)
        wire.reply = [event_stream(*HALF)]
        status, received, is_whole = await streamed(
            client, f"{base_url}/chat/completions", CALLS["/chat/completions"]
        )
        assert (status, is_whole) == (200, False)
        assert "did not answer in time" in json.loads(error_event(received))["error"]["message"]
        await assert_serves_on(wire, base_url, client)
        spans = await spans_of(store, attempt)
    assert [span.attributes.get(key.ERROR_TYPE) for span in spans] == ["504"] * (2 * len(CALLS) + 1) + [None]
    assert key.RESPONSE_TOKEN_IDS in spans[-2].attributes


async def test_an_event_without_end_is_given_up_before_it_fills_the_memory(store, line):
    wire, base_url, client, _ = line
    wire.reply, wire.then = [event_stream(b"data: "), *[b"x" * 2**20] * 70], "close"
    answer = await client.post(
        f"{base_url}/chat/completions", json={**CALLS["/chat/completions"], "stream": True}
    )
    assert answer.status_code == 502
    assert_is_error_of("/chat/completions", answer.content)
    await assert_serves_on(wire, base_url, client)


@pytest.mark.parametrize("body", [b"busy", b"\xff\xfe", b"", b"[1]", b'"x"', nested(300), nested(5000)])
@pytest.mark.parametrize("status", [400, 404, 429, 500, 503, 599])
async def test_a_refusal_keeps_its_status_whatever_its_body(store, line, status, body):
    wire, base_url, client, _ = line
    wire.reply, wire.then = [http(body, status=status)], "keep"
    for path, asked in {**CALLS, **SIDE_CALLS}.items():
        answer = await client.post(base_url + path, json=asked)
        assert answer.status_code == status, (path, answer.text)
    assert_is_error_of(
        "/messages", (await client.post(f"{base_url}/messages", json=CALLS["/messages"])).content
    )
    await assert_serves_on(wire, base_url, client)


@pytest.mark.parametrize("seed", range(4))
async def test_answers_that_are_damaged_anywhere_are_whole_or_errors(store, line, seed):
    wire, base_url, client, attempt = line
    wire.then, rng = "close", Random(seed)
    outcomes = []
    for _ in range(60):
        path, stream = rng.choice(list(CALLS)), rng.random() < 0.6
        wire.reply = [damaged(chunked(b"".join(CHUNKS)) if stream else json_answer(GOOD), rng)]
        status, received, is_whole = await streamed(client, base_url + path, CALLS[path], stream=stream)
        assert status in (200, 400, 502), (wire.reply, received)
        outcomes.append("ok" if status == 200 and is_whole else "error")
    await assert_serves_on(wire, base_url, client)
    assert [span.status.code for span in await spans_of(store, attempt)] == [*outcomes, "ok"]


def chunked(data):
    """An event stream in HTTP's chunks of 97 bytes."""
    pieces = [data[start : start + 97] for start in range(0, len(data), 97)]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])


def damaged(data, rng):
    """The bytes with one place changed, left out, doubled or cut, often in the head."""
    place = rng.randrange(200 if rng.random() < 0.4 else len(data))
    other = rng.choice(
        [bytes([rng.randrange(256)]), b"\r\n", b"\n", b"\0", b"-", b"f" * 16, b"{", b'"', b"\xff"]
    )
    size = rng.randint(1, 60)
    return rng.choice(
        [
            data[:place] + other + data[place + 1 :],
            data[:place] + data[place + size :],
            data[:place] + data[place : place + size] + data[place:],
            data[:place],
        ]
    )


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_an_external_engine_behind_the_proxy_tells_the_same(store, stream):
    cases = [
        *NO_HTTP.values(),
        *((reply, "close") for reply in (NO_STREAM if stream else NO_ANSWER).values()),
    ]
    async with (
        scripted_wire() as (wire, url),
        ExternalEngine(url, "policy", timeout_seconds=0.4) as engine,
        LLMProxy().serving(store, engine) as server,
        attempt_at(store, server) as (base_url, client, attempt),
    ):
        for reply, then in cases:
            wire.reply, wire.then = [reply], then
            status, received, is_whole = await streamed(
                client, f"{base_url}/chat/completions", CALLS["/chat/completions"], stream=stream
            )
            assert (status, is_whole) in ((502, True), (200, False)), (reply[:80], received)
            failure = received if status == 502 else error_event(received)
            assert_is_error_of("/chat/completions", failure)
        await assert_serves_on(wire, base_url, client)
        spans = await spans_of(store, attempt)
    assert [span.status.code for span in spans] == ["error"] * len(cases) + ["ok"]


async def streamed(client, url, body, *, stream=True):
    """The status, what came, and whether the response came to its end."""
    async with client.stream("POST", url, json={**body, "stream": stream}) as response:
        received = b""
        try:
            async for piece in response.aiter_bytes():
                received += piece
        except httpx.RemoteProtocolError:
            return response.status_code, received, False
    return response.status_code, received, True


def error_event(received):
    """The last event of a stream, as the error that it is."""
    told = sse_data(received)[-1]
    if told.get("type") == "response.failed":
        return orjson.dumps({"error": {**told["response"]["error"], "type": "server_error"}})
    if told.get("type") == "error" and "error" not in told:  # OpenAI's Responses
        return orjson.dumps({"error": {"message": told["message"], "type": told["type"]}})
    return orjson.dumps(told)
