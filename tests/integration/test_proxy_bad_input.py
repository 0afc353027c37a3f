"""The proxy over real sockets before clients that send what they should not: refused, and nothing stays open."""

import asyncio
import logging
from contextlib import asynccontextmanager, suppress

import httpx
import orjson
import psutil
import pytest
import pytest_asyncio
from scripted_vllm import scripted_vllm
from scripted_wire import event, event_stream, http, json_answer, nested, scripted_wire
from served_proxy import spans_of

from agl.proxy import LLMProxy
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ModelEndpoint, ProxyLLM, RolloutRequest

HELLO = [{"role": "user", "content": "hello"}]
CALLS = {
    "/chat/completions": {"model": "policy", "messages": HELLO},
    "/completions": {"model": "policy", "prompt": "hello"},
    "/responses": {"model": "policy", "input": "hello"},
    "/messages": {"model": "policy", "max_tokens": 9, "messages": HELLO},
    "/messages/count_tokens": {"model": "policy", "messages": HELLO},
    "/embeddings": {"model": "policy", "input": "hello"},
}
NO_JSON = {
    "nothing": b"",
    "half": b'{"model": "policy"',
    "zeros": b"\0" * 100,
    "no UTF-8": b'{"model": "\xff\xfe"}',
    "half a character": '{"model": "policy", "messages": "🦊"}'.encode()[:-4],
    "half a pair": b'{"model": "\\ud83d"}',
    "UTF-16": '{"model": "policy"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"model": "policy"}',
    "not a number": b'{"model": "policy", "temperature": NaN}',
    "infinity": b'{"model": "policy", "temperature": 1e999}',
    "a form": b"model=policy&prompt=hello",
    "packed": bytes.fromhex("1f8b0800000000000003abae0500436dd3a302000000"),
    "brackets": b"[" * 100_000,
}
NO_REQUEST = {
    "a list": b"[]",
    "null": b"null",
    "a text": b'"policy"',
    "an empty object": b"{}",
    "no model": b'{"model": 5}',
    "an empty model": b'{"model": ""}',
    "levels that cannot be written": b'{"model": "policy", "metadata": ' + nested(250) + b"}",
    "levels that can hardly be read": b'{"model": "policy", "metadata": ' + nested(1000) + b"}",
}
RAW = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "a line without end": b"GET /" + b"x" * 300_000,
    "a huge header": b"GET /health HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 300_000 + b"\r\n\r\n",
    "many headers": b"GET /health HTTP/1.1\r\nhost: x\r\n" + b"x: y\r\n" * 30_000 + b"\r\n",
    "a zero in a header": b"GET /health HTTP/1.1\r\nhost: x\r\nx: \0\r\n\r\n",
    "a length that is none": b"POST {base}/messages HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n{}",
    "two lengths": b"POST {base}/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "two framings": (
        b"POST {base}/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}"
    ),
    "a chunk that is none": (
        b"POST {base}/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"
    ),
    "half a body": b"POST {base}/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{",
    "a path that is none": b"POST {base}/%ff%00/../x?%zz#y HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
    "a websocket": (
        b"GET {base}/responses HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ),
    "an unknown method": b"BREW {base}/messages HTTP/1.1\r\nhost: x\r\n\r\n",
    "odd headers": (
        b"POST {base}/chat/completions HTTP/1.1\r\nhost: x\r\ntraceparent: 00-\xff-x-01\r\n"
        b"x-stainless-retry-count: 99999999999\r\nx-stainless-timeout: nan\r\nauthorization: Basic \xff\r\n"
        b"idempotency-key: \xff\xfe\r\ncontent-length: 2\r\n\r\n{}"
    ),
}
PATIENCE = 30.0

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store():
    async with InMemoryLightningStore() as opened:
        yield opened


@asynccontextmanager
async def serving(store, **settings):
    """Yields the proxy before a scripted model server; on the way out all must have been let go of."""
    fds, tasks = psutil.Process().num_fds(), len(asyncio.all_tasks())
    async with scripted_vllm() as (_, url):
        proxy = LLMProxy(
            endpoints={"vllm": ModelEndpoint(model="policy", urls=(url,))}, max_retries=0, **settings
        )
        async with proxy.serving(store, None) as server:
            yield server
    await asyncio.sleep(0)  # a cancelled task ends in the next round of the loop
    assert len(asyncio.all_tasks()) == tasks, asyncio.all_tasks()
    assert psutil.Process().num_fds() == fds


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["httptools", "h11"])
async def server(request, store):
    """The proxy as this machine's clients meet it, and as others do: two libraries read their requests."""
    settings = {} if request.param == "httptools" else {"host": "0.0.0.0", "token": "t0ken"}
    async with serving(store, **settings) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="module")
async def line(store, server):
    """A base URL of the proxy, and a client with the attempt's key."""
    started = await store.start_rollout(RolloutRequest(task=1))
    llm = llm_of(server, started.attempt)
    headers = {"authorization": f"Bearer {llm.api_key}"}
    async with httpx.AsyncClient(headers=headers) as client:
        yield llm.base_url, client


def llm_of(server, attempt):
    """The attempt's LLM, by the address of this machine."""
    url = f"http://127.0.0.1:{httpx.URL(server.url).port}"
    llm = ProxyLLM(base_url=url, model="policy", api_key=server.api_key)
    return llm.for_attempt(attempt.rollout_id, attempt.attempt_id)


def assert_is_error_of(path, answer, *codes):
    """An error as the client of this endpoint reads it."""
    told = answer.json()
    assert isinstance(told["error"]["message"], str)
    assert told["error"]["message"]
    assert isinstance(told["error"]["type"], str)
    assert (told.get("type") == "error") == path.startswith("/messages")
    assert not codes or told["error"].get("code") in (*codes, None)


async def assert_serves_on(base_url, client):
    """The next call is answered as if nothing had been."""
    answer = await client.post(f"{base_url}/chat/completions", json=CALLS["/chat/completions"])
    assert answer.json()["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON)
async def test_a_body_that_is_no_json_is_a_400_in_every_format(line, body):
    base_url, client = line
    for path in CALLS:
        answer = await client.post(base_url + path, content=body)
        assert answer.status_code == 400, (path, answer.text)
        assert_is_error_of(path, answer, "invalid_json")
    await assert_serves_on(base_url, client)


@pytest.mark.parametrize("body", NO_REQUEST.values(), ids=NO_REQUEST)
async def test_json_that_is_no_request_is_a_400_in_every_format(line, body):
    base_url, client = line
    for path in CALLS:
        answer = await client.post(base_url + path, content=body)
        assert answer.status_code == 400, (path, answer.text)
        assert_is_error_of(path, answer)
    await assert_serves_on(base_url, client)


@pytest.mark.parametrize("path", CALLS)
async def test_a_body_at_the_limit_of_its_depth_is_answered_and_recorded(store, line, path):
    base_url, client = line
    tool = {"type": "function", "name": "f", "parameters": {"x": "deep"}}
    place, levels = ({"tools": [tool]}, 4) if path == "/responses" else ({"x": "deep"}, 1)
    inner = b"[" * (200 - levels) + b"]" * (200 - levels)
    body = orjson.dumps({**CALLS[path], **place}).replace(b'"deep"', inner)
    answer = await client.post(base_url + path, content=body)
    assert answer.status_code in (200, 404), answer.text  # the model server has no completions and embeddings


@pytest.mark.parametrize("request_bytes", RAW.values(), ids=RAW)
async def test_bytes_that_are_no_request_are_refused_or_dropped(line, request_bytes):
    base_url, client = line
    url = httpx.URL(base_url)
    reader, writer = await asyncio.open_connection("127.0.0.1", url.port)
    writer.write(request_bytes.replace(b"{base}", url.raw_path))
    with suppress(ConnectionError):
        await writer.drain()
        writer.write_eof()
    told = b""
    with suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE):
            told = await reader.read()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    assert told == b"" or told.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4", b"HTTP/1.1 200 OK")), told[:200]
    assert b"HTTP/1.1 200" not in told or request_bytes.startswith(b"GET /health")
    await assert_serves_on(base_url, client)


async def test_many_clients_that_leave_in_the_middle_of_their_requests_leave_nothing(line):
    base_url, client = line
    url = httpx.URL(base_url)
    head = b"POST %b/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\n" % url.raw_path
    whole = head + b'{"model": "policy", "messages": ' + b" " * 900

    async def leave(num_bytes):
        _, writer = await asyncio.open_connection("127.0.0.1", url.port)
        writer.write(whole[:num_bytes])
        await writer.drain()
        writer.transport.abort()

    await asyncio.gather(*(leave(1 + number * len(whole) // 100) for number in range(100)))
    await assert_serves_on(base_url, client)


async def test_no_secret_is_in_answers_records_or_logs_whatever_goes_wrong(store, monkeypatch, caplog):
    monkeypatch.setenv("JUDGE_KEY", upstream_key := "sk-judge-s3cret")
    token = "pr0xy-t0ken"
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    async with scripted_wire() as (wire, url):
        endpoint = ModelEndpoint(model="policy", urls=(url,), api_key_env="JUDGE_KEY", timeout_seconds=0.3)
        proxy = LLMProxy(endpoints={"judge": endpoint}, max_retries=0, token=token)
        async with proxy.serving(store, None) as server:
            started = await store.start_rollout(RolloutRequest(task=1))
            llm = llm_of(server, started.attempt)
            keys = [llm.api_key, token, "guess-w0rd", f"{llm.api_key}x"]
            echo = {"error": {"message": f"no such key: {upstream_key}", "code": upstream_key}}
            replies = [
                json_answer(echo, status=401),
                http(f"denied: Bearer {upstream_key}".encode(), status=403, kind=b"text/plain"),
                http(f"<p>{upstream_key}</p>".encode(), kind=b"text/html"),
                event_stream(event(echo)),
                event_stream(f"data: {upstream_key}\n\n".encode()),
                http(b"", status=302, headers=f"location: /{upstream_key}\r\n".encode()),
                b"HTTP/1.1 200 OK\r\n" + upstream_key.encode(),
                b"",
            ]
            async with httpx.AsyncClient() as client:
                for reply in replies:
                    wire.reply = [reply]
                    for path, body in CALLS.items():
                        for key, stream in zip(keys, (False, True, False, True), strict=True):
                            asked = {**body, "stream": stream} if "embed" not in path else body
                            headers = {"authorization": f"Bearer {key}", "x-api-key": key}
                            with suppress(httpx.RemoteProtocolError):
                                answer = await client.post(llm.base_url + path, json=asked, headers=headers)
                                said.append(f"{answer.headers} {answer.text}")
            said += [span.model_dump_json() for span in await spans_of(store, started.attempt)]
            said += [repr(server), repr(proxy), repr(endpoint)]
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    said += [f"{record.getMessage()} {record.exc_text}" for record in ours]
    assert len(said) > 200
    for secret in (upstream_key, *keys):
        assert [text for text in said if secret in text] == []
