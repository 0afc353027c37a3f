"""A server that answers every HTTP request with the same bytes, right or wrong, and then hangs, closes or resets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress

import orjson

_HEAD = b"HTTP/1.1 %d X\r\ncontent-type: %s\r\n"


class ScriptedWire:
    """The bytes of an answer, and what comes after them.

    ``then``: ``keep`` the connection for further requests, ``close`` it, ``reset`` it, or ``hang``.
    """

    def __init__(self) -> None:
        self.reply: Iterable[bytes] = ()
        self.then = "close"
        self.num_requests = 0
        self.open = 0
        self.all_closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        self.open += 1
        self.all_closed.clear()
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._answer_all(reader, writer)
        finally:
            writer.close()
            self.open -= 1
            if not self.open:
                self.all_closed.set()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = next(
                (line for line in head.split(b"\r\n") if line.startswith(b"content-length:")), b":0"
            )
            await reader.readexactly(int(length.partition(b":")[2]))
            self.num_requests += 1
            for piece in self.reply:
                writer.write(piece)
                await writer.drain()
            if self.then == "reset":
                writer.transport.abort()
            if self.then in ("close", "reset"):
                return
            if self.then == "hang":
                await reader.read()
                return


@asynccontextmanager
async def scripted_wire() -> AsyncGenerator[tuple[ScriptedWire, str]]:
    """Serve on a free port; yields the server and the base URL."""
    wire = ScriptedWire()
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    async with server:
        yield wire, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def http(body: bytes, *, status: int = 200, kind: bytes = b"application/json", headers: bytes = b"") -> bytes:
    """A whole answer."""
    return _HEAD % (status, kind) + headers + b"content-length: %d\r\n\r\n" % len(body) + body


def json_answer(value: object, *, status: int = 200) -> bytes:
    """A whole answer of JSON."""
    return http(orjson.dumps(value), status=status)


def event_stream(*data: bytes) -> bytes:
    """The head of a stream that ends with its connection, and what it begins with."""
    return _HEAD % (200, b"text/event-stream") + b"\r\n" + b"".join(data)


def event(value: object) -> bytes:
    """A server-sent event of JSON."""
    return b"data: " + orjson.dumps(value) + b"\n\n"


def nested(depth: int) -> bytes:
    """JSON of so many levels."""
    return b'{"error":' * depth + b"1" + b"}" * depth
