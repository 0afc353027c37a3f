"""HttpServer: requests to one server over kept connections, and its refusals as errors.

httpx scans all idle connections of a client for every request, so many calls at once are spread over several small
clients. Redirects are not followed: a request goes to the configured URL or nowhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

import httpx
import orjson

from agl.proxy.upstreams.base import UpstreamError, is_retried, masked, shown
from agl.proxy.upstreams.waits import retry_after_seconds
from agl.types.sse import Event, EventTooLargeError, SseDecoder

_CLIENT_CONNECTIONS = 16  # calls of one httpx client at once; its scan of them is short
_PROBE_SECONDS = 5.0
_END_SECONDS = 0.25
_JSON = {"content-type": "application/json", "accept-encoding": "identity"}


@dataclass(slots=True)
class _Lane:
    """One httpx client and the calls that it has under way."""

    client: httpx.AsyncClient
    calls: int = 0


class HttpServer:
    """One base URL.

    Args:
        url: up to and including the version.
        headers: of every request; those with the key among them.
        key: is masked in everything that the server says.
        timeout_seconds: the longest wait for an answer's first or next piece.
        connect_seconds: the longest wait for a connection.
        transport: what stands in for the network; None is the network.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        key: str | None,
        timeout_seconds: float,
        connect_seconds: float,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url
        self._headers = {**_JSON, **headers}
        self._key = key
        self._timeout = httpx.Timeout(timeout_seconds, connect=connect_seconds, pool=None)
        self._transport = transport
        self._lanes: list[_Lane] = []

    async def post(
        self, path: str, body: Mapping[str, Any], *, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Return the body of the server's answer.

        Raises:
            UpstreamError: it refused, or there was no answer.
        """
        with _lane(self._lanes, self._new_client) as client:
            try:
                response = await client.post(self.url + path, content=orjson.dumps(body), headers=headers)
            except httpx.HTTPError as error:
                raise self._unanswered(error) from error
        if not response.is_success:
            raise self._refusal(response.status_code, response.headers, response.text)
        return response.content

    @asynccontextmanager
    async def posted_events(
        self, path: str, body: Mapping[str, Any], *, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[AsyncGenerator[Event]]:
        """Yield the server-sent events of the server's answer as they come; leaving gives up what is not there yet.

        Raises:
            UpstreamError: on entering, when it refused; from the events, when the connection broke.
        """
        with _lane(self._lanes, self._new_client) as client:
            request = client.build_request(
                "POST", self.url + path, content=orjson.dumps(body), headers=headers
            )
            try:
                response = await client.send(request, stream=True)
            except httpx.HTTPError as error:
                raise self._unanswered(error) from error
            try:
                if not response.is_success:
                    raise self._refusal(response.status_code, response.headers, await self._text_of(response))
                pieces = cast("AsyncGenerator[bytes]", response.aiter_bytes())
                async with aclosing(pieces):
                    yield self._events(pieces)
                    await _read_to_the_end(pieces)
            finally:
                await response.aclose()

    async def probe(self) -> bool:
        """Ask for the list of models; any answer but a server's failure will do."""
        with _lane(self._lanes, self._new_client) as client:
            try:
                async with asyncio.timeout(_PROBE_SECONDS):
                    response = await client.get(f"{self.url}/models")
            except (httpx.HTTPError, TimeoutError):
                return False
        return response.status_code < 500

    async def aclose(self) -> None:
        """Close all connections."""
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            await lane.client.aclose()

    def parsed(self, body: bytes) -> dict[str, Any]:
        """Return an answer's JSON object.

        Raises:
            UpstreamError: 502, it is none.
        """
        try:
            answer: object = orjson.loads(body)
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise self.broken("answered with something else than a JSON object")
        return cast("dict[str, Any]", answer)

    def broken(self, what: str) -> UpstreamError:
        """Return the error of an answer that is none."""
        return UpstreamError(f"{self.url} {what}", status=502, retry=True, sick=True)

    def _new_client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=_CLIENT_CONNECTIONS)
        return httpx.AsyncClient(
            headers=self._headers, timeout=self._timeout, limits=limits, transport=self._transport
        )

    async def _events(self, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[Event]:
        decoder = SseDecoder()
        try:
            async for piece in pieces:
                for event in decoder.feed(piece):
                    yield event
        except httpx.HTTPError as error:
            raise self._unanswered(error) from error
        except EventTooLargeError as error:
            raise self.broken(f"does not stream server-sent events: {error}") from error

    async def _text_of(self, response: httpx.Response) -> str:
        try:
            await response.aread()
        except httpx.HTTPError as error:
            raise self._unanswered(error) from error
        return response.text

    def _unanswered(self, error: httpx.HTTPError) -> UpstreamError:
        why = masked(str(error), self._key) or type(error).__name__
        if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
            message = f"{self.url} did not answer in time ({why})"
            return UpstreamError(message, status=504, retry=True, sick=True)
        message = f"{self.url} cannot be reached or broke off: {why}"
        return UpstreamError(message, status=502, retry=True, sick=True)

    def _refusal(self, status: int, headers: httpx.Headers, text: str) -> UpstreamError:
        """The server's refusal with its body as it came, except that the key in it is masked."""
        if status < 400:
            return self.broken(f"answered HTTP {status}, which is neither an answer nor an error")
        text = masked(text, self._key)
        try:
            body: object = orjson.loads(text)
        except orjson.JSONDecodeError:
            body = text or None
        return UpstreamError(
            f"{self.url} answered HTTP {status}: {shown(text)}",
            status=status,
            body=body,
            retry=is_retried(status) and headers.get("x-should-retry") != "false",
            sick=status >= 500,
            retry_after=retry_after_seconds(headers, now=time.time()),
        )


async def _read_to_the_end(pieces: AsyncGenerator[bytes]) -> None:
    """Wait shortly for the end after the last event: only then can the connection be used again."""
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(_END_SECONDS):
            async for _ in pieces:
                pass


@contextmanager
def _lane(lanes: list[_Lane], new_client: Callable[[], httpx.AsyncClient]) -> Generator[httpx.AsyncClient]:
    """The first client with room, so that the others' connections may fall idle."""
    lane = next((lane for lane in lanes if lane.calls < _CLIENT_CONNECTIONS), None)
    if lane is None:
        lane = _Lane(new_client())
        lanes.append(lane)
    lane.calls += 1
    try:
        yield lane.client
    finally:
        lane.calls -= 1
