from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from agl.http.served import Connection, ConnectionLimits, JoinedWrites

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        self.written = b""
        self.ended = asyncio.Event()
        self.aborted = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.ended.is_set()

    def close(self) -> None:
        self.ended.set()

    def abort(self) -> None:
        self.aborted.set()

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def hello(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


class Server:
    """What connections of one server share."""

    def __init__(self, **limits: Any) -> None:
        self.limits = ConnectionLimits(**{"max_connections": 10} | limits)
        self.config = uvicorn.Config(hello, log_config=None, lifespan="off", ws="none")
        self.config.load()
        self.state = ServerState()

    def connect(self) -> tuple[Connection, Transport]:
        connection = Connection(self.limits, config=self.config, server_state=self.state, app_state={})
        transport = Transport()
        connection.connection_made(transport)
        return connection, transport

    async def answered(self) -> None:
        while self.state.tasks:
            await asyncio.wait(self.state.tasks)


async def test_requests_are_answered_one_after_the_other() -> None:
    server = Server(head_seconds=60.0)
    connection, transport = server.connect()
    for count in (1, 2, 3):
        connection.data_received(REQUEST[:10])
        connection.data_received(REQUEST[10:])
        await server.answered()
        assert transport.written.count(b"200 OK") == count
    assert not transport.is_closing()
    connection.connection_lost(None)
    assert server.state.connections == set()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost:"])
async def test_a_head_that_does_not_come_ends_the_connection(sent: bytes) -> None:
    server = Server(head_seconds=0.01)
    connection, transport = server.connect()
    if sent:
        connection.data_received(sent)

    await asyncio.wait_for(transport.ended.wait(), 10)

    assert transport.written.startswith(b"HTTP/1.1 408 ")
    connection.connection_lost(None)


async def test_a_second_head_that_stalls_ends_the_connection() -> None:
    server = Server(head_seconds=0.01)
    connection, transport = server.connect()
    connection.data_received(REQUEST)
    await server.answered()
    connection.data_received(REQUEST[:10])

    await asyncio.wait_for(transport.ended.wait(), 10)

    assert b"200 OK" in transport.written
    assert b" 408 " in transport.written
    connection.connection_lost(None)


async def test_an_endless_head_ends_the_connection() -> None:
    server = Server()
    connection, transport = server.connect()
    connection.data_received(b"GET / HTTP/1.1\r\nx: ")
    for _ in range(70):
        if transport.is_closing():
            break
        connection.data_received(b"y" * 1024)

    assert transport.is_closing()
    assert transport.written.startswith(b"HTTP/1.1 4")
    connection.connection_lost(None)


async def test_one_connection_too_many_is_turned_away() -> None:
    server = Server(max_connections=2)
    connections = [server.connect() for _ in range(2)]

    late, transport = server.connect()

    assert transport.written.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"unavailable"' in transport.written
    assert transport.is_closing()
    late.connection_lost(None)
    connections[0][0].connection_lost(None)
    after, transport = server.connect()
    assert transport.written == b""
    for connection in (connections[1][0], after):
        connection.connection_lost(None)


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    server = Server(unread_seconds=0.01)
    connection, transport = server.connect()
    connection.pause_writing()

    await asyncio.wait_for(transport.aborted.wait(), 10)
    connection.connection_lost(None)


async def test_a_client_that_reads_again_is_not() -> None:
    server = Server(unread_seconds=60.0)
    connection, transport = server.connect()
    connection.pause_writing()
    connection.resume_writing()
    connection.data_received(REQUEST)
    await server.answered()

    assert transport.written.endswith(b"hi")
    assert not transport.aborted.is_set()
    connection.eof_received()
    connection.connection_lost(None)


async def test_head_and_body_of_an_answer_go_out_together() -> None:
    inner = Counted()
    joined = JoinedWrites(inner, asyncio.get_running_loop())
    joined.write(b"head")
    joined.write(b"body")
    assert inner.writes == []
    await asyncio.sleep(0)
    assert inner.writes == [b"headbody"]
    joined.write(b"x" * 100_000)
    assert len(inner.writes) == 2  # at once, so that the transport sees how slowly its client reads
    joined.write(b"last")
    joined.close()
    await asyncio.sleep(0)
    assert inner.writes[2:] == [b"last"]
    assert inner.ended.is_set()


async def test_an_aborted_connection_sends_no_more() -> None:
    inner = Counted()
    joined = JoinedWrites(inner, asyncio.get_running_loop())
    joined.write(b"head")
    joined.abort()
    await asyncio.sleep(0)
    assert inner.writes == []
    assert inner.aborted.is_set()


class Counted(Transport):
    """Keeps what each write wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
