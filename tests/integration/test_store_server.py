"""The store's server over real connections: clients that leave, stall or come from elsewhere, and its stop."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from agl.errors import ConfigError
from agl.http.listening import listening
from agl.store.server import StoreServer
from agl.store.sqlite import SqliteStore
from agl.types import AttemptQuery, Page, Rollout, RolloutQuery, RolloutRequest, Span

ADMIN = {"authorization": "Bearer admin"}


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    path = ":memory:" if request.param == "memory" else str(tmp_path / "store.sqlite")
    async with SqliteStore(path) as opened:
        yield opened


@pytest.fixture
async def url(store: SqliteStore) -> AsyncIterator[str]:
    async with StoreServer(store, port=0).serving() as url:
        yield url


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield reader, writer
    finally:
        writer.close()


def request(method: str, path: str, body: object = None, **headers: str) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"content-length: {len(content)}"]
    lines += [
        f"{name.replace('_', '-')}: {value}" for name, value in ({"host": "127.0.0.1"} | headers).items()
    ]
    return "\r\n".join([*lines, "", ""]).encode() + content


async def answer(reader: asyncio.StreamReader) -> tuple[int, Any]:
    """The status and the JSON body of the next answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    (length,) = (line for line in head.split("\r\n") if line.startswith("content-length:"))
    body = await reader.readexactly(int(length.partition(":")[2]))
    return int(head.split()[1]), json.loads(body)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110 - the server is asked, and cannot call back
            await asyncio.sleep(0.005)


async def num_waiting(url: str) -> int:
    async with httpx.AsyncClient() as client:
        lines = (await client.get(f"{url}/metrics", headers=ADMIN)).text.splitlines()
    (line,) = (line for line in lines if line.startswith("agl_store_long_polls "))
    return int(float(line.split()[1]))


async def test_a_client_that_leaves_while_it_waits_strands_nothing(store: SqliteStore, url: str) -> None:
    async with connected(url) as (_, writer):
        writer.write(request("POST", "/v1/rollouts/dequeue", {"worker_id": "gone", "wait_seconds": 30}))
        await until(lambda: waiting(url, 1))
    await until(lambda: waiting(url, 0))

    await store.enqueue_rollout(RolloutRequest(task=1, rollout_id="a"))

    assert (await store.query_attempts(AttemptQuery(rollout_id="a"))).items == []
    held = await store.dequeue_rollout(worker_id="here")
    assert held is not None
    assert (held.rollout.rollout_id, held.rollout.num_attempts) == ("a", 1)


async def waiting(url: str, number: int) -> bool:
    return await num_waiting(url) == number


async def test_a_stop_answers_those_who_wait_with_what_they_have(store: SqliteStore) -> None:
    await store.start_rollout(RolloutRequest(task=1, rollout_id="a"))
    await store.start_rollout(RolloutRequest(task=1, rollout_id="b"))
    await store.cancel_rollout("a")
    server = StoreServer(store, port=0).serving()
    url = await server.__aenter__()
    async with connected(url) as first, connected(url) as second, connected(url) as idle:
        first[1].write(request("POST", "/v1/rollouts/dequeue", {"worker_id": "w", "wait_seconds": 30}))
        second[1].write(
            request("POST", "/v1/rollouts/wait", {"rollout_ids": ["a", "b"], "timeout_seconds": 30})
        )
        idle[1].write(request("GET", "/v1/health"))
        assert (await answer(idle[0]))[0] == 200
        await until(lambda: waiting(url, 2))

        await server.__aexit__(None, None, None)

        assert await answer(first[0]) == (200, None)
        status, waited = await answer(second[0])
        assert (status, [rollout["rollout_id"] for rollout in waited["items"]]) == (200, ["a"])
        assert await idle[0].read() == b""
    with pytest.raises(ConnectionRefusedError):
        async with connected(url):
            pass


class SlowStore(SqliteStore):
    """Takes its time for a page, as long as ``ready`` is not set."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.asked, self.ready = asyncio.Event(), asyncio.Event()

    async def query_rollouts(self, query: RolloutQuery | None = None) -> Page[Rollout]:
        self.asked.set()
        await self.ready.wait()
        return await super().query_rollouts(query)


async def test_a_stop_lets_a_running_request_end(tmp_path: Path) -> None:
    async with SlowStore() as store, httpx.AsyncClient() as client:
        async with StoreServer(store, port=0, grace_seconds=20).serving() as url:
            page = asyncio.create_task(client.get(f"{url}/v1/rollouts"))
            await store.asked.wait()
            asyncio.get_running_loop().call_later(0.2, store.ready.set)
        assert (await page).json() == {"items": [], "next_cursor": None}


async def test_a_stop_waits_no_longer_than_its_grace(tmp_path: Path) -> None:
    async with SlowStore() as store, httpx.AsyncClient() as client:
        async with StoreServer(store, port=0, grace_seconds=0.1).serving() as url:
            page = asyncio.create_task(client.get(f"{url}/v1/rollouts"))
            await store.asked.wait()
        refused = await page
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")


async def test_a_port_in_use_is_told(store: SqliteStore, url: str) -> None:
    port = urlsplit(url).port
    assert port is not None
    with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}: another program listens there"):
        async with StoreServer(store, port=port).serving():
            pass


async def test_an_address_of_another_machine_is_told(store: SqliteStore) -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1"):
        async with StoreServer(store, host="192.0.2.1", port=0, token="admin").serving():
            pass


async def test_a_foreign_name_and_a_foreign_page_are_refused(url: str) -> None:
    port = urlsplit(url).port
    async with connected(url) as (reader, writer):
        for headers, status in (
            ({"host": f"127.0.0.1:{port}"}, 200),
            ({"host": f"localhost:{port}"}, 200),
            ({"host": f"evil.example:{port}"}, 403),
            ({"host": f"127.0.0.1:{port}", "origin": "https://evil.example"}, 403),
            ({"host": f"127.0.0.1:{port}", "origin": f"http://127.0.0.1:{port}"}, 200),
        ):
            writer.write(request("POST", "/v1/rollouts", {"task": 1}, **headers))
            assert (await answer(reader))[0] == status, headers


async def test_requests_sent_ahead_are_answered_in_their_order(url: str) -> None:
    async with connected(url) as (reader, writer):
        requests = [request("POST", "/v1/rollouts", {"task": n, "rollout_id": f"r{n}"}) for n in range(20)]
        writer.write(b"".join(requests))
        answers = [await answer(reader) for _ in requests]
    assert [body["rollout_id"] for _, body in answers] == [f"r{n}" for n in range(20)]


async def test_a_client_that_asks_first_sends_a_large_body_or_is_told_not_to(url: str) -> None:
    for size, expected in ((1_000_000, b"HTTP/1.1 100 Continue"), (100_000_000, b"HTTP/1.1 413 ")):
        async with connected(url) as (reader, writer):
            head = f"POST /v1/rollouts HTTP/1.1\r\nhost: 127.0.0.1\r\nexpect: 100-continue\r\ncontent-length: {size}"
            writer.write(head.encode() + b"\r\n\r\n")
            assert (await reader.readline()).startswith(expected)


async def test_one_connection_too_many_is_told(store: SqliteStore) -> None:
    async with StoreServer(store, port=0, max_connections=2).serving() as url:
        async with connected(url) as first, connected(url) as second:
            for reader, writer in (first, second):
                writer.write(request("GET", "/v1/health"))
                assert (await answer(reader))[0] == 200
            async with connected(url) as (reader, _):
                status, body = await answer(reader)
                assert (status, body["error"]["code"]) == (503, "unavailable")

        async def is_served() -> bool:
            async with connected(url) as (reader, writer):
                writer.write(request("GET", "/v1/health"))
                return (await answer(reader))[0] == 200

        await until(is_served)


async def test_a_client_that_reads_slowly_keeps_nobody_waiting(store: SqliteStore, url: str) -> None:
    spans = [
        Span(
            span_id=f"{n:016x}",
            trace_id="a" * 32,
            name="n",
            start_time_ns=n,
            attributes={"text": f"{n}" * 20_000},
        )
        for n in range(400)
    ]
    await store.add_many_spans(spans)
    async with connected(url) as (reader, writer):
        writer.write(request("GET", "/v1/spans?limit=1000"))
        await reader.readuntil(b"\r\n\r\n")  # and no more
        async with httpx.AsyncClient(base_url=url) as client:
            for _ in range(20):
                assert (await client.get("/v1/health")).status_code == 200
            whole = await client.get("/v1/spans?limit=1000")
            assert [item["span_id"] for item in whole.json()["items"]] == [span.span_id for span in spans]


async def test_a_backup_is_a_store_of_its_own(store: SqliteStore, url: str, tmp_path: Path) -> None:
    await store.enqueue_rollout(RolloutRequest(task={"n": 1}, rollout_id="a"))
    copy = tmp_path / "copy.sqlite"
    async with httpx.AsyncClient(base_url=url) as client:
        copy.write_bytes((await client.get("/v1/backup")).content)

    async with SqliteStore(str(copy)) as opened:
        assert (await opened.get_rollout_by_id("a")).task == {"n": 1}
    with sqlite3.connect(copy) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def open_copies() -> list[str]:
    """The copies this process still reads; their names are gone by then."""
    targets: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            targets.append(str(descriptor.readlink()))
    return [target for target in targets if "agl-backup-" in target]


async def test_a_backup_whose_client_leaves_leaves_nothing_behind(
    store: SqliteStore, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    text = "".join(chr(0x4E00 + n % 20_000) for n in range(20_000))
    spans = [
        Span(
            span_id=f"{n:016x}",
            trace_id="a" * 32,
            name="n",
            start_time_ns=n,
            attributes={"text": f"{n}{text}"},
        )
        for n in range(300)
    ]
    await store.add_many_spans(spans)
    async with connected(url) as (reader, writer):
        writer.write(request("GET", "/v1/backup"))
        await reader.readuntil(b"\r\n\r\n")
        assert not list((tmp_path / "temporary").iterdir())
        assert len(open_copies()) == 1

    async def is_gone() -> bool:
        return not open_copies()

    await until(is_gone)


async def test_scoped_tokens_and_the_admins_over_a_real_connection(store: SqliteStore) -> None:
    held = await store.start_rollout(RolloutRequest(task=1, rollout_id="a"))
    async with (
        StoreServer(store, port=0, token="admin").serving() as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        assert (await client.get("/v1/health")).status_code == 200
        assert (await client.get("/v1/rollouts/a")).status_code == 401
        key = {"rollout_id": "a", "attempt_id": held.attempt.attempt_id}
        token = (await client.post("/v1/tokens", json=key, headers=ADMIN)).json()["token"]
        client.headers["authorization"] = f"Bearer {token}"
        assert (await client.get("/v1/rollouts/a")).status_code == 200
        assert (await client.get("/v1/rollouts")).status_code == 403


def test_an_address_that_is_none_is_a_mistake_in_the_named_setting() -> None:
    with (
        pytest.raises(ConfigError, match=r"proxy\.host=no such host: "),
        listening("no such host", 0, who="the proxy", settings="proxy."),
    ):
        pass
