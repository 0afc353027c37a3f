"""HttpClient: requests to one base URL, over connections that are kept; from one event loop."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial

from agl.http.address import Address, Dial, dialer, parts_of, provider_context
from agl.http.bodies import Body, PackingError, Unpacking, unpacked
from agl.http.connections import Connections, LostError, NotHttpError
from agl.http.parsing import MAX_BODY_BYTES, Answer, parser_maker
from agl.http.proxies import proxy_of, tunnel

MAX_REFUSAL_BYTES = 1024 * 1024
"""So much is read of a streamed answer that is an error."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(slots=True)
class Streamed:
    """An answer that comes piece by piece."""

    status: int
    headers: dict[bytes, bytes]
    """Names in lower case."""
    body: Body
    unpacking: Unpacking | None

    async def read(self) -> bytes:
        """Return all that has come since the last time, waiting for the next piece; nothing at the end.

        Raises:
            HttpError: the connection ended before the body, or nothing came in time.
        """
        piece = await self.body.read()
        if self.unpacking is None:
            return piece
        try:
            while piece:
                plain = self.unpacking.feed(piece)
                if plain:
                    return plain
                piece = await self.body.read()
        except PackingError as error:
            raise NotHttpError(str(error)) from error
        return b""

    async def beginning(self) -> bytes:
        """Return the body as far as an error is repeated.

        Raises:
            HttpError: the same.
        """
        parts: list[bytes] = []
        while sum(map(len, parts)) < MAX_REFUSAL_BYTES and (piece := await self.read()):
            parts.append(piece)
        return b"".join(parts)


class HttpClient:
    """Requests to one base URL. An idle connection that turns out to be dead is replaced without a word.

    Args:
        url: up to and including the version.
        headers: of every request.
        answer_seconds: the longest wait for an answer, and for each piece of a streamed one.
        connect_seconds: the longest wait for a connection.
        max_connections: requests beyond so many at once wait for one to end; None sets no limit.

    Raises:
        ValueError: no URL, or a header that cannot be sent.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        answer_seconds: float,
        connect_seconds: float,
        max_connections: int | None = None,
    ) -> None:
        address = parts_of(url)
        way = _way_to(address)
        self._dial, self._prefix = way.dial, way.prefix
        self._head = _lines({"host": address.authority, **headers, **way.headers})
        self._answer_seconds = answer_seconds
        self._connect_seconds = connect_seconds
        self._max_connections = max_connections
        self._connections: Connections | None = None

    async def post(self, path: str, body: bytes, *, headers: Mapping[str, str] | None = None) -> Answer:
        """Return the answer to a POST of JSON.

        Raises:
            HttpError: there is none.
        """
        return await self._answer(self._post(path, body, headers), self._answer_seconds)

    async def get(self, path: str, *, seconds: float) -> Answer:
        """Return the answer to a GET if it comes in time.

        Raises:
            HttpError: there is none.
        """
        return await self._answer(
            f"GET {self._prefix}{path} HTTP/1.1\r\n{self._head}\r\n".encode("latin-1"), seconds
        )

    @asynccontextmanager
    async def posted(
        self, path: str, body: bytes, *, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Streamed]:
        """Yield the answer to a POST of JSON as it comes; leaving before its end closes the connection at once.

        Raises:
            HttpError: there is none.
        """
        request, connections = self._post(path, body, headers), self._opened()
        while True:
            try:
                async with connections.stream(request, seconds=self._answer_seconds) as (head, came):
                    packed = head.headers.get(b"content-encoding")
                    unpacking = None if packed is None else _unpacking(packed)
                    yield Streamed(head.status, head.headers, came, unpacking)
                    return
            except LostError as error:
                if not error.stale:
                    raise

    def close(self) -> None:
        """Close all connections; requests under way are lost."""
        connections, self._connections = self._connections, None
        if connections is not None:
            connections.close()

    async def _answer(self, request: bytes, seconds: float) -> Answer:
        connections = self._opened()
        while True:  # each stale connection is one less
            try:
                answer = await connections.exchange(request, seconds=seconds)
            except LostError as error:
                if not error.stale:
                    raise
                continue
            packed = answer.headers.get(b"content-encoding")
            if packed is not None:
                try:
                    answer.body = await asyncio.to_thread(
                        unpacked, answer.body, packed, max_bytes=MAX_BODY_BYTES
                    )
                except PackingError as error:
                    raise NotHttpError(str(error)) from error
            return answer

    def _opened(self) -> Connections:
        if self._connections is None:
            self._connections = Connections(
                self._dial,
                parser_maker(),
                max_connections=self._max_connections,
                connect_seconds=self._connect_seconds,
            )
        return self._connections

    def _post(self, path: str, body: bytes, headers: Mapping[str, str] | None) -> bytes:
        head = self._head if headers is None else self._head + _lines(headers)
        kind = "content-type: application/json\r\naccept-encoding: identity\r\n"
        return (
            f"POST {self._prefix}{path} HTTP/1.1\r\n{head}{kind}content-length: {len(body)}\r\n\r\n".encode(
                "latin-1"
            )
            + body
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How to get to a server: straight, or through the environment's proxy."""

    dial: Dial
    prefix: str
    """What requests' targets begin with."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def _way_to(address: Address) -> _Way:
    context = cache(provider_context)
    try:
        proxy = proxy_of(address)
    except OSError as error:
        return _Way(dial=partial(_no_way, str(error)), prefix=address.prefix)
    if proxy is None:
        return _Way(dial=dialer(address, new_context=context), prefix=address.prefix)
    if address.tls:
        return _Way(dial=tunnel(address, proxy, new_context=context), prefix=address.prefix)
    given = {} if proxy.authorization is None else {"proxy-authorization": proxy.authorization}
    return _Way(
        dial=dialer(replace(address, host=proxy.host, port=proxy.port)),
        prefix=f"http://{address.authority}{address.prefix}",  # the form that proxies want
        headers=given,
    )


async def _no_way(why: str, factory: Callable[[], asyncio.Protocol]) -> object:
    """Fail as a connection that cannot be made."""
    del factory
    raise OSError(why)


def _unpacking(encoding: bytes) -> Unpacking | None:
    try:
        return None if encoding == b"identity" else Unpacking(encoding)
    except PackingError as error:
        raise NotHttpError(str(error)) from error


def _lines(headers: Mapping[str, str]) -> str:
    for name, value in headers.items():
        if _CONTROL.search(name + value):
            raise ValueError(f"header {name}: a value without control characters")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())
