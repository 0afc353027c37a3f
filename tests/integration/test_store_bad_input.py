"""Whatever a client sends to ``agl store``: an answer that says what is wrong, bounded memory, and it serves on."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import json
import socket
import struct
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
import uvicorn
from store_processes import StoreProcess, served

from agl.http.listening import EmbeddedServer, listening
from agl.http.served import Connection, ConnectionLimits
from agl.store.server import create_app
from agl.store.sqlite import SqliteStore

MB = 1_000_000
MAX_GROWTH_BYTES = 300 * MB
JSON = {"content-type": "application/json"}
PROTOBUF = {"content-type": "application/x-protobuf"}
GZIP = {"content-encoding": "gzip"}


class Victim:
    """A served store and what its memory was at first."""

    def __init__(self, process: StoreProcess) -> None:
        self.url = process.url
        self._process = psutil.Process(process.process.pid)
        self._idle_bytes = self._process.memory_info().rss
        address = urlsplit(self.url)
        self._address = (address.hostname or "", address.port or 0)

    def forget_peak(self) -> None:
        """Let the peak of its memory begin again; it is back at rest then."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5", encoding="ascii")

    def refuses(self, answer: httpx.Response) -> None:
        """Check that the request was the client's fault, that this says so, and that the server serves on."""
        assert 400 <= answer.status_code < 500, (answer.status_code, answer.text[:500])
        told = answer.json()
        assert told["message"] if "message" in told else told["error"]["message"]
        self.serves_on()

    def serves_on(self, *, most: int = MAX_GROWTH_BYTES) -> None:
        """Check that it answers and has not grown."""
        assert httpx.get(f"{self.url}/v1/health", timeout=20).json()["status"] == "ok"
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        (peak,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
        growth = int(peak.split()[1]) * 1024 - self._idle_bytes
        assert growth < most, f"{growth / MB:.0f} MB more than at first"

    def post(self, path: str, body: Any, headers: dict[str, str] = JSON) -> httpx.Response:
        """Send a body."""
        return httpx.post(f"{self.url}{path}", content=body, headers=headers, timeout=60)

    def says(self, *parts: bytes) -> bytes:
        """Send bytes over a connection of their own, as far as they are taken; return the answer."""
        with socket.create_connection(self._address, timeout=30) as connection:
            with contextlib.suppress(ConnectionError):
                for part in parts:
                    connection.sendall(part)
            answer = b""
            with contextlib.suppress(ConnectionError):
                while part := connection.recv(65536):
                    answer += part
                    if b"\r\n\r\n" in answer and _is_whole(answer):
                        break
        return answer

    def refuses_or_closes(self, *parts: bytes) -> None:
        """Check that bytes are refused, or not answered at all, and that the server serves on."""
        answer = self.says(*parts)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer[:500]
        self.serves_on()

    def connect(self) -> socket.socket:
        """Return an open connection."""
        return socket.create_connection(self._address, timeout=30)


def _is_whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(length) and len(body) >= int(length[0].split(b":")[1])


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with served(folder=tmp_path_factory.mktemp("store")) as process:
        httpx.get(f"{process.url}/openapi.json")  # what is made once belongs to the idle memory
        yield Victim(process)


@pytest.fixture(autouse=True)
def _own_peak(victim: Victim) -> None:
    victim.forget_peak()


def pieces(byte: bytes, size: int) -> Iterator[bytes]:
    piece = byte * 65536
    for _ in range(size // len(piece)):
        yield piece


def bomb(byte: bytes, size: int) -> bytes:
    """Return gzip data of ``size`` equal bytes, without ever holding these."""
    packer = zlib.compressobj(wbits=31)
    return b"".join([*map(packer.compress, pieces(byte, size)), packer.flush()])


def field(number: int, data: bytes) -> bytes:
    """Return data as an embedded message of protobuf."""
    size, length = len(data), b""
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


def spans_message(*spans: bytes) -> bytes:
    return field(1, field(2, b"".join(field(2, span) for span in spans)))


PATHS = ("/v1/rollouts", "/v1/spans", "/v1/traces")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("byte", [b"[", b" ", b"\0", b'{"a":'])
def test_a_body_of_100_mb_is_too_large(victim: Victim, path: str, byte: bytes) -> None:
    answer = victim.post(path, pieces(byte, 100 * MB))
    assert answer.status_code == 413
    victim.refuses(answer)


def test_a_body_of_100_mb_is_refused_before_it_is_sent(victim: Victim) -> None:
    head = b"POST /v1/spans HTTP/1.1\r\nhost: 127.0.0.1\r\nexpect: 100-continue\r\ncontent-length: 100000000\r\n\r\n"
    answer = victim.says(head)
    assert answer.startswith(b"HTTP/1.1 413 ")
    victim.serves_on()


@pytest.mark.parametrize("path", PATHS)
def test_a_gzip_bomb_is_too_large(victim: Victim, path: str) -> None:
    for packed in (bomb(b"[", 200 * MB), gzip.compress(bomb(b" ", 100 * MB)), bomb(b" ", 20 * MB) * 10):
        answer = victim.post(path, packed, JSON | GZIP)
        assert answer.status_code in (400, 413)
        victim.refuses(answer)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"\x1f\x8b",
        gzip.compress(b"[]" * 1000)[:-9],
        gzip.compress(b"[]") + b"rest",
        b"\x78\x9c\x8b\x8e\x05\x00\x01\x5c\x00\xb9",
    ],
    ids=["none", "head", "cut", "tail", "zlib"],
)
def test_wrong_gzip_is_refused(victim: Victim, path: str, body: bytes) -> None:
    answer = victim.post(path, body, JSON | GZIP)
    assert answer.status_code == 400
    victim.refuses(answer)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "part", [b"[],", b"{},", b'{"":0},', b'"",', b"0,", b"[[[[[[[[]]]]]]]],", b'{"task":0},']
)
def test_60_mb_of_tiny_values_are_refused(victim: Victim, path: str, part: bytes) -> None:
    body = b"[" + part * (60 * MB // len(part)) + b"0]"
    victim.refuses(victim.post(path, body))


@pytest.mark.parametrize("part", [b'{"":0},', b"[],"])
def test_60_mb_of_tiny_values_within_a_field_are_refused(victim: Victim, part: bytes) -> None:
    inside = part * (60 * MB // len(part))
    victim.refuses(victim.post("/v1/rollouts", b'{"task":[' + inside + b"0]}"))
    values = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[' + inside + b"0]}]}]}]}"
    victim.refuses(victim.post("/v1/traces", values))


@pytest.mark.parametrize(
    "span",
    [
        b"",
        b"\x4a\x00" * 100_000,
        b"".join(b"\x4a\x09\x0a\x04" + struct.pack("<I", n % 128 + 1) + b"\x12\x00" for n in range(20_000)),
    ],
    ids=["spans", "attributes", "keys"],
)
def test_60_mb_of_tiny_messages_are_refused_or_rejected(victim: Victim, span: bytes) -> None:
    one = field(2, span)
    body = field(1, field(2, one * (60 * MB // len(one))))
    answer = victim.post("/v1/traces", body, PROTOBUF)
    assert answer.status_code in (200, 400, 413), answer.text
    victim.serves_on()


def test_one_message_of_60_mb_is_refused(victim: Victim) -> None:
    for inside in (b"\x4a\x00" * (30 * MB), field(9, field(2, field(5, b"\x0a\x00" * (29 * MB))))):
        answer = victim.post("/v1/traces", spans_message(inside), PROTOBUF)
        assert answer.status_code == 413
        victim.serves_on()


@pytest.mark.parametrize("body", [b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x7f", field(1, b"\x0a" * 1000)])
def test_malformed_otlp_is_refused(victim: Victim, body: bytes) -> None:
    assert victim.post("/v1/traces", body, PROTOBUF).status_code == 400
    victim.refuses(victim.post("/v1/traces", body, JSON))


def deep(opening: bytes, closing: bytes, depth: int = 10_000) -> bytes:
    return opening * depth + b"0" + closing * depth


@pytest.mark.parametrize(
    "nested",
    [deep(b"[", b"]"), deep(b'{"a":', b"}"), deep(b"[", b"]", 1_000_000)[:-5]],
    ids=["list", "map", "open"],
)
def test_json_10000_deep_is_refused(victim: Victim, nested: bytes) -> None:
    for path, body in (
        ("/v1/rollouts", b'{"task":%b}' % nested),
        ("/v1/rollouts", nested),
        (
            "/v1/spans",
            b'{"span_id":"a","trace_id":"b","name":"n","start_time_ns":0,"attributes":{"x":%b}}' % nested,
        ),
        ("/v1/resources", b'{"resources":{"x":%b}}' % nested),
        ("/v1/traces", nested),
        ("/v1/runs", b'{"name":"n","settings":{"x":%b}}' % nested),
    ):
        victim.refuses(victim.post(path, body))


def test_an_otlp_value_10000_deep_is_refused(victim: Victim) -> None:
    value = b'{"arrayValue":{"values":[' * 10_000 + b"]}}" * 10_000
    body = b'{"resourceSpans":[{"resource":{"attributes":[{"key":"k","value":%b}]}}]}' % value
    victim.refuses(victim.post("/v1/traces", body))
    inside = b""
    for _ in range(10_000):
        inside = field(1, inside) if len(inside) > 60_000 else field(5, field(1, inside))
    victim.refuses(victim.post("/v1/traces", spans_message(field(9, field(2, inside))), JSON))
    assert victim.post("/v1/traces", spans_message(field(9, field(2, inside))), PROTOBUF).status_code == 400


@pytest.fixture
def attempt(victim: Victim) -> str:
    held = victim.post("/v1/rollouts?start=true", b'{"task":0}').json()
    return f"/v1/rollouts/{held['rollout_id']}/attempts/{held['attempt']['attempt_id']}"


@pytest.mark.parametrize(
    "reward", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b'"NaN"', b"9" * 400]
)
def test_a_reward_that_is_no_number_is_refused(victim: Victim, attempt: str, reward: bytes) -> None:
    for body in (
        b'{"status":"succeeded","reward":%b}',
        b'{"status":"succeeded","reward_dimensions":{"a":%b}}',
    ):
        victim.refuses(httpx.patch(victim.url + attempt, content=body % reward, headers=JSON))
    victim.refuses(
        victim.post("/v1/rollouts", b'{"task":{"deep":[%b]}}' % reward)
        if reward[:1] not in b'"9'
        else victim.post("/v1/rollouts", b'{"task":0,"priority":%b}' % reward)
    )
    assert httpx.get(victim.url + attempt.rsplit("/attempts/")[0]).json()["reward"] is None


SURROGATE = rb'"\ud800"'


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/rollouts", b'{"task":%b}'),
        ("/v1/rollouts", b'{"task":{%b:1}}'),
        ("/v1/rollouts", b'{"task":0,"rollout_id":%b}'),
        ("/v1/rollouts", b'{"task":0,"run_id":%b}'),
        ("/v1/rollouts/dequeue", b'{"worker_id":%b}'),
        ("/v1/spans", b'{"span_id":%b,"trace_id":"b","name":"n","start_time_ns":0}'),
        ("/v1/resources", b'{"resources":{%b:1}}'),
        ("/v1/workers", b'{"worker_id":"w","host":%b}'),
        ("/v1/runs", b'{"name":%b}'),
        ("/v1/traces", b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":%b}]}]}]}'),
    ],
)
def test_half_a_character_is_refused(victim: Victim, path: str, body: bytes) -> None:
    victim.refuses(victim.post(path, body % SURROGATE))
    victim.refuses(victim.post(path, body % b'"\xed\xa0\x80"'))
    victim.refuses(victim.post(path, body % b'"\xff"'))


@pytest.mark.parametrize("odd", ["a/b", "/", "..", ".", "a\\b", "a b", "\0", "\n", "", "x" * 201])
def test_an_id_that_fits_no_url_is_refused(victim: Victim, odd: str) -> None:
    for path, body in (
        ("/v1/rollouts", {"task": 0, "rollout_id": odd}),
        ("/v1/rollouts/dequeue", {"worker_id": odd}),
        ("/v1/resources", {"resources": {}, "resources_id": odd}),
        ("/v1/workers", {"worker_id": odd}),
        ("/v1/runs", {"name": "n", "run_id": odd}),
    ):
        victim.refuses(victim.post(path, json.dumps(body)))


@pytest.mark.parametrize(
    "path",
    [
        "/v1/rollouts/a%2Fb",
        "/v1/rollouts/..%2f..%2fetc",
        "/v1/rollouts/%00",
        "/v1/rollouts/%ff%fe",
        "/v1/rollouts//",
        "/v1/rollouts/%ed%a0%80",
        "/v1/rollouts/" + "x" * 10_000,
        "//v1/health",
        "/v1/health/",
        "/V1/health",
        "/v1/rollouts/%zz",
    ],
)
def test_a_path_that_names_nothing_is_not_found(victim: Victim, path: str) -> None:
    answer = victim.says(b"GET %b HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" % path.encode())
    assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 ", b"HTTP/1.1 422 ")), answer[:300]
    assert b'"error"' in answer or answer.startswith(b"HTTP/1.1 400"), answer[:300]
    victim.serves_on()


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=-1",
        "limit=1e3",
        "limit=%39999999999999999999",
        "cursor=AAAA",
        "cursor=%00",
        "cursor=..",
        "order=up",
        "nothing=1",
        "limit=1&limit=2",
        "name=%ff",
        "name=%ed%a0%80",
        "attributes=%7B",
        "attributes=[1]",
        "attributes=" + "%5B" * 2000,
        "&".join(f"a{n}=1" for n in range(5000)),
        "created_after=nan",
        "limit",
    ],
    ids=lambda query: query[:24],
)
def test_wrong_parameters_are_refused(victim: Victim, query: str) -> None:
    path = "rollouts" if query.startswith("created") else "spans"
    victim.refuses(httpx.get(f"{victim.url}/v1/{path}?{query}"))


HEAD = b"POST /v1/rollouts HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
BODY = b'{"task":0}'


@pytest.mark.parametrize(
    "parts",
    [
        (b"\0" * 1000 + b"\r\n\r\n",),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500,),
        (b"GET\r\n\r\n",),
        (b"GET /v1/health HTTP/9.9\r\n\r\n",),
        (b"GET / v1 /health HTTP/1.1\r\n\r\n",),
        (b"BREW /v1/rollouts HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",),
        (HEAD + b"content-length: -1\r\n\r\n" + BODY,),
        (HEAD + b"content-length: ten\r\n\r\n" + BODY,),
        (HEAD + b"content-length: 10\r\ncontent-length: 11\r\n\r\n" + BODY,),
        (HEAD + b"content-length: " + b"9" * 400 + b"\r\n\r\n" + BODY,),
        (HEAD + b"content-length: 99999999999999999999\r\n\r\n" + BODY,),
        (HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",),
        (HEAD + b"transfer-encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",),
        (HEAD + b"transfer-encoding: gzip\r\n\r\n" + BODY,),
        (HEAD + b"x\0y: 1\r\n\r\n",),
        (HEAD + b"x: " + b"y" * 200_000 + b"\r\n\r\n",),
        (HEAD + b"".join(b"x-%d: y\r\n" % number for number in range(20_000)) + b"\r\n",),
        (b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\n\r\n",),
        (b"GET /v1/spans?" + b"a" * 200_000 + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",),
        (HEAD, *[b"x: y\r\n" * 1000] * 2000),
    ],
    ids=lambda parts: repr(parts[0][-40:])[2:30],
)
def test_what_is_no_http_is_refused_or_cut_off(victim: Victim, parts: Iterable[bytes]) -> None:
    victim.refuses_or_closes(*parts)


@pytest.mark.parametrize("path", ["/v1/health", "/v1/nothing", "/docs", "/v1/rollouts/x/cancel", "/metrics"])
def test_a_large_body_where_none_is_read_takes_no_memory(victim: Victim, path: str) -> None:
    head = b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100000000\r\n\r\n" % path.encode()
    answer = victim.says(head, *pieces(b"x", 100 * MB))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer[:300]
    victim.serves_on()


def test_many_clients_in_the_middle_of_a_body_hold_nobody_up(victim: Victim) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            connection = stack.enter_context(victim.connect())
            connection.sendall(HEAD + b"content-length: 50000000\r\n\r\n" + b"[" * 1000)
        victim.serves_on()
        assert victim.post("/v1/rollouts", BODY).status_code == 200
    victim.serves_on()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"1",
        b'"x"',
        b"{}{}",
        b"\xef\xbb\xbf{}",
        '{"task":0}'.encode("utf-16"),
        b'{"task":0,"color":1}',
        b'{"task":0,}',
        b"{'task':0}",
        b'{"task":0}\0',
        b"[null]",
        b"[[]]",
    ],
    ids=repr,
)
def test_what_is_no_record_is_refused(victim: Victim, body: bytes) -> None:
    victim.refuses(victim.post("/v1/rollouts", body))


@contextlib.asynccontextmanager
async def impatient(seconds: float) -> AsyncIterator[int]:
    """A server as ``StoreServer`` makes it, with limits that a test can wait for; its port."""
    async with SqliteStore(":memory:") as store:
        limits = ConnectionLimits(max_connections=1000, head_seconds=seconds, unread_seconds=seconds)
        http: Any = functools.partial(Connection, limits)
        config = uvicorn.Config(
            create_app(store, body_seconds=seconds), http=http, lifespan="off", loop="none", log_config=None
        )
        server = EmbeddedServer(config)
        with listening("127.0.0.1", 0, who="the store") as listener:
            task = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield listener.getsockname()[1]
            finally:
                server.should_exit = True
                await task


async def drip(port: int, start: bytes, drop: bytes) -> bytes:
    """Send a drop at a time until the server has had enough; return its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(start)
    answered = asyncio.create_task(reader.read())
    with contextlib.suppress(ConnectionError):
        while not (await asyncio.wait((answered,), timeout=0.02))[0]:
            writer.write(drop)
    writer.close()
    try:
        return await answered
    except ConnectionError:  # closed while drops were under way, which can outrun the answer
        return b""


async def test_clients_that_send_a_drop_at_a_time_are_cut_off_all_at_once() -> None:
    head, body = b"GET /v1/health HTTP/1.1\r\nhost: 127.0.0.1\r\n", HEAD + b"content-length: 1000000\r\n\r\n["
    async with impatient(0.5) as port, asyncio.timeout(60), httpx.AsyncClient() as client:
        drips = [
            asyncio.create_task(drip(port, *what))
            for what in ((head, b"x: y\r\n"), (body, b"1,"))
            for _ in range(100)
        ]
        answer = await client.get(f"http://127.0.0.1:{port}/v1/health", timeout=20)
        assert answer.status_code == 200
        told = await asyncio.gather(*drips)
    assert all(one == b"" or one.startswith(b"HTTP/1.1 408 ") for one in told)


def test_too_many_at_once_are_refused(victim: Victim) -> None:
    victim.refuses(victim.post("/v1/rollouts", json.dumps([{"task": 0}] * 10_001)))
    victim.refuses(victim.post("/v1/rollouts/query", json.dumps({"rollout_ids": ["a"], "limit": 10_001})))


def test_large_bodies_at_once_are_told_to_come_later(victim: Victim) -> None:
    """Eight times the largest body is what all requests together may hold; small ones pass meanwhile."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(victim.connect()) for _ in range(12)]
        for connection in connections:
            with contextlib.suppress(ConnectionError):
                connection.sendall(HEAD + b"content-length: 60000000\r\n\r\n")
                for piece in pieces(b" ", 50 * MB):
                    connection.sendall(piece)
        told = [connection.recv(12) for connection in connections[-2:]]
        assert told == [b"HTTP/1.1 429"] * 2
        victim.serves_on(most=8 * 64 * 1024 * 1024 + MAX_GROWTH_BYTES)
