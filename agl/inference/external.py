"""ExternalEngine: a model behind any OpenAI-compatible URL; it answers calls and cannot be trained.

httpx looks through all connections of a client for every request, so many calls at once are spread over several small
clients: at 256 calls at once, one costs 1.5 ms of processor time so, and 2.6 ms with one client.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import urlsplit

import httpx
import orjson

from agl.errors import ConfigError, InferenceError
from agl.types.sse import DONE, EventTooLargeError, SseDecoder
from agl.types.weights import PolicyWeights

_MASK = "***"
_CLIENT_CONNECTIONS = 16
_END_SECONDS = 0.25
"""How long a stream that has said it is done may take to end, so that its connection can be used again."""


@dataclass(slots=True)
class _Lane:
    """One httpx client and the number of its calls under way."""

    client: httpx.AsyncClient
    calls: int = 0


@dataclass(slots=True)
class _Open:
    """What entering the engine makes."""

    headers: dict[str, str]
    key: str | None
    free: asyncio.Semaphore
    lanes: list[_Lane] = field(default_factory=list[_Lane])


class ExternalEngine:
    """Forwards calls to ``{base_url}/chat/completions``.

    A call with a ``prompt`` in place of messages is refused: the proxy's own upstreams forward those.

    Args:
        base_url: up to and including the version, e.g. ``https://api.openai.com/v1``.
        model: the model name that requests use.
        api_key_env: the environment variable that holds the API key, read on entering; None sends no key.
        timeout_seconds: the longest wait for an answer.
        connect_seconds: the longest wait for a connection.
        max_connections: calls beyond so many at once wait for one to end.
        ask_for_token_ids: pass on vLLM's ``return_token_ids``; other servers may refuse a call that has it.
        ask_for_logprobs: pass on ``logprobs``; False is for models that refuse it.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key_env: str | None = None,
        timeout_seconds: float = 600.0,
        connect_seconds: float = 10.0,
        max_connections: int = 256,
        ask_for_token_ids: bool = False,
        ask_for_logprobs: bool = True,
    ) -> None:
        self._url = _chat_url(base_url)
        if not model:
            raise ConfigError("inference.model: the name of a model")
        for name, value in (("timeout_seconds", timeout_seconds), ("connect_seconds", connect_seconds)):
            if not value > 0:
                raise ConfigError(f"inference.{name}={value}: more than 0")
        if max_connections < 1:
            raise ConfigError(f"inference.max_connections={max_connections}: at least 1")
        self._model = model
        self._api_key_env = api_key_env
        self._timeout = httpx.Timeout(timeout_seconds, connect=connect_seconds, pool=None)
        self._max_connections = max_connections
        self._ask_for_token_ids = ask_for_token_ids
        self._ask_for_logprobs = ask_for_logprobs
        self._open: _Open | None = None

    def __repr__(self) -> str:
        return f"ExternalEngine({self._url!r}, model={self._model!r})"

    @property
    def model(self) -> str:
        """The model name that requests use."""
        return self._model

    @property
    def policy_version(self) -> int:
        """0: the weights are somebody else's and never swapped."""
        return 0

    @property
    def trainable(self) -> bool:
        """False: the weights are out of reach."""
        return False

    async def __aenter__(self) -> Self:
        key = _key_from(self._api_key_env)
        headers = {"content-type": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        self._open = _Open(headers, key, asyncio.Semaphore(self._max_connections))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._open = self._open, None
        for lane in [] if opened is None else opened.lanes:
            await lane.client.aclose()

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a chat completion request with the server's answer.

        Raises:
            InferenceError: the server's status and body; 502 when it cannot be reached, 504 when it takes too long.
        """
        opened = self._entered()
        body = orjson.dumps(self._worded(request))
        async with opened.free:
            with self._lane(opened) as client:
                try:
                    response = await client.post(self._url, content=body)
                except httpx.HTTPError as error:
                    raise _unanswered(self._url, error, opened.key) from error
        if not response.is_success:
            raise _refusal(self._url, response, opened.key)
        answer = _json_object(response.content)
        if answer is None:
            raise InferenceError(f"{self._url} answered with something else than a JSON object", status=502)
        return answer

    async def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Answer a chat completion request with the chunks of the server's stream, as they come.

        Closing the generator closes the connection at once.

        Raises:
            InferenceError: the server's status and body; 502 when it cannot be reached, or its stream ends before it
                is done, 504 when it takes too long.
        """
        opened = self._entered()
        options = {"stream": True, "stream_options": {"include_usage": True}}
        body = orjson.dumps(self._worded(request) | options)
        async with opened.free:
            with self._lane(opened) as client:
                try:
                    async with client.stream("POST", self._url, content=body) as response:
                        if not response.is_success:
                            await response.aread()
                            raise _refusal(self._url, response, opened.key)
                        pieces = cast("AsyncGenerator[bytes]", response.aiter_bytes())
                        async with (
                            aclosing(pieces),
                            aclosing(_chunks(self._url, pieces, opened.key)) as chunks,
                        ):
                            async for chunk in chunks:
                                yield chunk
                            await _ended(pieces)
                except httpx.HTTPError as error:
                    raise _unanswered(self._url, error, opened.key) from error

    async def load_weights(self, weights: PolicyWeights) -> None:
        """Refuse: the weights are not ours to change.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"inference=external: the weights behind {self._url} cannot be set to version {weights.policy_version}; "
            "train with another engine, e.g. inference=transformers, or use an algorithm without weights"
        )

    def _entered(self) -> _Open:
        if self._open is None:
            raise InferenceError(f"the engine for {self._url} is not open", status=503)
        return self._open

    @contextmanager
    def _lane(self, opened: _Open) -> Generator[httpx.AsyncClient]:
        """The first client with a connection to spare, so that the others' fall idle and are closed."""
        lane = next((lane for lane in opened.lanes if lane.calls < _CLIENT_CONNECTIONS), None)
        if lane is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=_CLIENT_CONNECTIONS)
            lane = _Lane(httpx.AsyncClient(headers=opened.headers, timeout=self._timeout, limits=limits))
            opened.lanes.append(lane)
        lane.calls += 1
        try:
            yield lane.client
        finally:
            lane.calls -= 1

    def _worded(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The request without what this server is not asked for.

        Raises:
            InferenceError: 400, it has no messages but a prompt.
        """
        if request.get("prompt") is not None:
            raise InferenceError(
                "this engine forwards chat completions, not completions of a prompt", status=400
            )
        worded = dict(request)
        if not self._ask_for_token_ids:
            worded.pop("return_token_ids", None)
        if not self._ask_for_logprobs:
            worded.pop("logprobs", None)
            worded.pop("top_logprobs", None)
        return worded


def _chat_url(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.username or parts.password:
        raise ConfigError(
            "inference.base_url: no user or password in the URL; name the key's variable in api_key_env"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"inference.base_url={base_url}: an http(s) URL such as https://api.openai.com/v1")
    return base_url.rstrip("/") + "/chat/completions"


def _key_from(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"inference.api_key_env={variable}: this environment variable is not set")
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"inference.api_key_env={variable}: the variable's value is not a key (ASCII text)")
    return key


async def _chunks(url: str, pieces: AsyncGenerator[bytes], key: str | None) -> AsyncGenerator[dict[str, Any]]:
    """Yield the chunks in a stream of server-sent events until it says that it is done."""
    decoder = SseDecoder()
    try:
        async for piece in pieces:
            for event in decoder.feed(piece):
                if event.data == DONE:
                    return
                chunk = _json_object(event.data)
                if chunk is None:
                    raise InferenceError(f"{url} streamed something else than JSON objects", status=502)
                if chunk.get("error"):
                    raise _streamed_error(url, event.data, key)
                yield chunk
    except EventTooLargeError as error:
        raise InferenceError(f"{url} streamed no answer: {error}", status=502) from error
    raise InferenceError(f"{url} ended its stream before it was done", status=502)


async def _ended(pieces: AsyncGenerator[bytes]) -> None:
    """Read what is left of a stream that is done, if that comes soon."""
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(_END_SECONDS):
            async for _ in pieces:
                pass


def _streamed_error(url: str, data: bytes, key: str | None) -> InferenceError:
    """The failure that a server tells of in mid-stream, when its HTTP status is long sent."""
    text = _masked(data.decode("utf-8", "replace"), key)
    body = _json_object(text.encode()) or {}
    error: object = body.get("error")
    code = cast("dict[str, object]", error).get("code") if isinstance(error, dict) else None
    status = code if type(code) is int and 400 <= code <= 599 else 502
    return InferenceError(f"{url} failed in its stream: {text[:500]}", status=status, body=body)


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        value: object = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _unanswered(url: str, error: httpx.HTTPError, key: str | None) -> InferenceError:
    if isinstance(error, httpx.TimeoutException):
        return InferenceError(f"{url} did not answer in time ({_why(error, key)})", status=504)
    return InferenceError(f"{url} cannot be reached or broke off: {_why(error, key)}", status=502)


def _why(error: httpx.HTTPError, key: str | None) -> str:
    return _masked(str(error), key) or type(error).__name__


def _refusal(url: str, response: httpx.Response, key: str | None) -> InferenceError:
    """The server's refusal with its body as it came, except that a key in it is masked."""
    status = response.status_code
    text = _masked(response.text, key)
    if status < 400:
        return InferenceError(
            f"{url} answered HTTP {status}, which is neither an answer nor an error", status=502
        )
    try:
        body: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        body = text or None
    return InferenceError(f"{url} answered HTTP {status}: {text[:500]}", status=status, body=body)


def _masked(text: str, key: str | None) -> str:
    return text.replace(key, _MASK) if key else text
