"""HttpServer: requests to one server over kept connections, and its refusals as errors.

Redirects are not followed: a request goes to the configured URL or nowhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, cast

import orjson

from agl.errors import InferenceError
from agl.http.client import HttpClient, Streamed
from agl.http.connections import HttpError, LostError
from agl.proxy.upstreams.base import MASK, UpstreamError, is_retried, is_sick, masked, shown
from agl.proxy.upstreams.waits import retry_after_seconds
from agl.types.sse import Event, EventTooLargeError, SseDecoder

_PROBE_SECONDS = 5.0
_END_SECONDS = 0.25


class HttpServer:
    """One base URL.

    Args:
        url: up to and including the version.
        headers: of every request; those with the key among them.
        key: is masked in what the server says of its failures.
        timeout_seconds: the longest wait for an answer's first or next piece.
        connect_seconds: the longest wait for a connection.
        max_connections: requests beyond so many at once wait for one to end; None sets no limit of its own.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        key: str | None,
        timeout_seconds: float,
        connect_seconds: float,
        max_connections: int | None = None,
    ) -> None:
        self.url = url
        self._key = key
        self._client = HttpClient(
            url,
            headers=headers,
            answer_seconds=timeout_seconds,
            connect_seconds=connect_seconds,
            max_connections=max_connections,
        )

    async def post(
        self, path: str, body: Mapping[str, Any], *, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Return the body of the server's answer.

        Raises:
            UpstreamError: it refused, or there was no answer.
        """
        try:
            answer = await self._client.post(path, orjson.dumps(body), headers=headers)
        except HttpError as error:
            raise self._unanswered(error) from error
        if not 200 <= answer.status < 300:
            raise self._refusal(answer.status, answer.headers, answer.body)
        return answer.body

    @asynccontextmanager
    async def posted_events(
        self, path: str, body: Mapping[str, Any], *, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[AsyncGenerator[Event]]:
        """Yield the server-sent events of the server's answer as they come; leaving gives up what is not there yet.

        Raises:
            UpstreamError: on entering, when it refused; from the events, when the connection broke.
        """
        try:
            async with self._client.posted(path, orjson.dumps(body), headers=headers) as streamed:
                if not 200 <= streamed.status < 300:
                    refused = await streamed.beginning()
                    raise self._refusal(streamed.status, streamed.headers, refused)
                async with aclosing(self._events(streamed)) as events:
                    yield events
                await _read_to_the_end(streamed)
        except HttpError as error:
            raise self._unanswered(error) from error

    async def probe(self) -> bool:
        """Ask for the list of models; any answer but a server's failure will do."""
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                answer = await self._client.get("/models", seconds=_PROBE_SECONDS)
        except (HttpError, TimeoutError):
            return False
        return answer.status < 500

    async def aclose(self) -> None:
        """Close all connections."""
        self._client.close()

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

    def masked(self, told: bytes) -> bytes:
        """Return what the server tells of a failure, without the key."""
        return told.replace(self._key.encode(), MASK.encode()) if self._key else told

    def told(self, error: InferenceError) -> UpstreamError:
        """Return the failure that an answer or an event tells of, without the key."""
        try:
            body: object = orjson.loads(self.masked(orjson.dumps(error.body)))
        except orjson.JSONEncodeError:  # nested too deep to be repeated
            body = None
        return UpstreamError(
            f"{self.url}: {masked(str(error), self._key)}",
            status=error.status,
            body=body,
            retry=is_retried(error.status),
            sick=is_sick(error.status),
        )

    def broken(self, what: str) -> UpstreamError:
        """Return the error of an answer that is none."""
        return UpstreamError(f"{self.url} {what}", status=502, retry=True, sick=True)

    async def _events(self, streamed: Streamed) -> AsyncGenerator[Event]:
        decoder = SseDecoder()
        try:
            while piece := await streamed.read():
                for event in decoder.feed(piece):
                    yield event
        except HttpError as error:
            raise self._unanswered(error) from error
        except EventTooLargeError as error:
            raise self.broken(f"does not stream server-sent events: {error}") from error

    def _unanswered(self, error: HttpError) -> UpstreamError:
        why = masked(str(error), self._key)
        if isinstance(error, LostError) and error.late:
            message = f"{self.url} did not answer in time ({why})"
            return UpstreamError(message, status=504, retry=True, sick=True)
        message = f"{self.url} cannot be reached or broke off: {why}"
        return UpstreamError(message, status=502, retry=True, sick=True)

    def _refusal(self, status: int, headers: Mapping[bytes, bytes], told: bytes) -> UpstreamError:
        """The server's refusal with its body as it came, except that the key in it is masked."""
        if status < 400:
            message = f"{self.url} answered HTTP {status}, which is neither an answer nor an error"
            return UpstreamError(
                message, status=502
            )  # a redirect stays one: the URL in the settings is wrong
        text = masked(told.decode("utf-8", "replace"), self._key)
        try:
            body: object = orjson.loads(text)
        except orjson.JSONDecodeError:
            body = text or None
        named = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        return UpstreamError(
            f"{self.url} answered HTTP {status}: {shown(text)}",
            status=status,
            body=body,
            retry=is_retried(status) and named.get("x-should-retry") != "false",
            sick=is_sick(status),
            retry_after=retry_after_seconds(named, now=time.time()),
        )


async def _read_to_the_end(streamed: Streamed) -> None:
    """Wait shortly for the end after the last event: only then can the connection be used again."""
    if not streamed.body.ended:
        with suppress(TimeoutError, HttpError):
            async with asyncio.timeout(_END_SECONDS):
                await streamed.read()
