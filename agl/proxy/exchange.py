"""Exchange: one HTTP request and its answer, over raw ASGI: limits on what comes in, whole and streamed answers out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl

from agl.http.served import OWN_STATE, Connection
from agl.proxy.canonical import ReadingAnswer
from agl.proxy.dialects.base import Dialect, EventWriter
from agl.proxy.refusal import CallRefusedError
from agl.proxy.upstream import NATIVE, NativeEvent

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON = b"application/json"
EVENTS = b"text/event-stream; charset=utf-8"
_NO_STATE: Mapping[str, Any] = MappingProxyType({})
_MAX_HEADER_BYTES = 64 * 1024  # what h11 and most servers allow
_MAX_DISCARDED = (
    8  # times the body limit: how much of a refused body is read so that the client sees the refusal
)
_FINISH_SECONDS = 60.0  # longest wait for a client to take the end of its stream


class ClientGoneError(Exception):
    """The client closed the connection; nobody is left to answer."""


class Exchange:
    """One request; knows whether its answer has begun."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.path: str = scope["path"]
        self.method: str = scope["method"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.dialect: Dialect | None = None
        """Of the client, as soon as the path has told it."""
        self.delivery: Delivery | None = None
        """Of a streamed answer."""
        self._scope = scope
        self._receive = receive
        self._send = send
        self._connection: Connection | None = scope.get("state", _NO_STATE).get(OWN_STATE)

    @property
    def raw_path(self) -> bytes:
        """The path, not percent-decoded."""
        return self._scope.get("raw_path") or self.path.encode()

    def parameters(self) -> dict[str, str]:
        """Return the URL's parameters."""
        return dict(parse_qsl(self._scope.get("query_string", b"").decode("latin-1")))

    def header(self, name: bytes) -> str | None:
        """Return a header's value, None where it is missing or empty."""
        return self.headers.get(name, b"").decode("latin-1") or None

    def check_headers(self) -> None:
        """Check the size of the headers.

        Raises:
            CallRefusedError: 431, they are too large.
        """
        if sum(len(name) + len(value) for name, value in self._scope["headers"]) > _MAX_HEADER_BYTES:
            raise CallRefusedError("the headers are larger than 64 KiB", status=431, code="headers_too_large")

    async def body(self, max_bytes: int) -> bytes:
        """Return the whole body. One over the limit is read to its end, unkept, so that the client sees the refusal.

        Raises:
            CallRefusedError: 413, it is too large.
            ClientGoneError: the client left before its end.
        """
        declared = self.headers.get(b"content-length", b"0")
        parts: list[bytes] = []
        size, too_large = 0, declared.isdigit() and int(declared) > max_bytes
        more = True
        while more and size <= max_bytes * _MAX_DISCARDED:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            part = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(part)
            too_large = too_large or size > max_bytes
            if too_large:
                parts.clear()
            else:
                parts.append(part)
        if too_large:
            text = f"the request body is larger than {max_bytes} bytes (setting max_body_bytes of the proxy)"
            raise CallRefusedError(text, status=413, code="body_too_large")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def has_whole_body(self) -> bool:
        """Whether the body is there without a wait, as far as the server tells."""
        return self._connection is not None and self._connection.has_whole_request

    @contextmanager
    def watched(self) -> Generator[asyncio.Future[None]]:
        """Yields what is done once the client has closed the connection."""
        if self._connection is not None:
            yield self._connection.lost
            return
        gone = asyncio.create_task(self.disconnect())
        try:
            yield gone
        finally:
            gone.cancel()

    async def disconnect(self) -> None:
        """Return when the client has closed the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(self, status: int, body: bytes, *headers: Header, content_type: bytes = JSON) -> None:
        """Send a whole answer."""
        fixed = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
        await self._send({"type": "http.response.start", "status": status, "headers": [*fixed, *headers]})
        await self._send({"type": "http.response.body", "body": body})

    async def begin_events(self, *headers: Header) -> None:
        """Begin a stream of server-sent events."""
        fixed = [(b"content-type", EVENTS), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        await self._send({"type": "http.response.start", "status": 200, "headers": [*fixed, *headers]})

    async def send_events(self, data: bytes, *, last: bool = False) -> None:
        """Send events; waits while the client is slow to take the ones before."""
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})


class Delivery:
    """Sends the events of one streamed answer while it comes; holds back its end until it is told to finish."""

    def __init__(
        self, exchange: Exchange, writer: EventWriter, *, finish_seconds: float = _FINISH_SECONDS
    ) -> None:
        self._exchange = exchange
        self._writer = writer
        self._finish_seconds = finish_seconds
        self._held: list[bytes] = []
        """The end of a stream that is passed through."""
        self._ending = b""
        self._is_whole = False
        self._gone = False
        self.begun = False
        """The client has seen a part of the answer: from now on errors are events."""

    async def send(self, chunk: Mapping[str, Any], *, span_id: str, is_last: bool) -> None:
        """Send what a chunk says to the client, if it says anything.

        Args:
            chunk: canonical; an event that is passed through is in it.
            span_id: of the call's record, for the response's headers.
            is_last: the model has ended: events that are passed through are the answer's end, and wait for ``finish``.

        Raises:
            InferenceError: 502, it is no chunk of a chat completion.
        """
        if self._gone:
            return
        native: NativeEvent | None = chunk.get(NATIVE)
        if native is None:
            with ReadingAnswer():
                data = self._writer.chunk(chunk)
        else:
            data = native.data
        if self._held or (native is not None and (native.last or is_last)):
            self._held.append(data)
        elif data:
            if not self.begun:
                self.begun = True
                await self._exchange.begin_events((b"x-request-id", span_id.encode()))
            await self._exchange.send_events(data)

    def end(self, answer: Mapping[str, Any]) -> None:
        """Take the whole answer, for its end to be sent by ``finish``."""
        if self.begun and not self._gone:
            self._ending = b"".join(self._held) if self._held else self._writer.end(answer)
            self._is_whole = True

    def fail(self, message: str, *, status: int, code: str, body: object = None) -> None:
        """Take the failure of a stream that has begun; it replaces an end."""
        if self.begun and not self._gone:
            self._ending = self._writer.error(message, status=status, code=code, body=body)
            self._is_whole = False

    def leave(self) -> None:
        """Send nothing more: the client is gone."""
        self._gone = True

    async def finish(self) -> None:
        """Send the end. After a failure the HTTP response stays without one, so that no client takes it for whole."""
        try:
            async with asyncio.timeout(self._finish_seconds):
                await self._exchange.send_events(self._ending, last=self._is_whole)
        except TimeoutError as error:
            raise ClientGoneError from error
