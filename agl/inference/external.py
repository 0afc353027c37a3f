"""ExternalEngine: a model behind any OpenAI-compatible URL; it answers calls and cannot be trained."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import urlsplit

import orjson

from agl.errors import ConfigError, InferenceError
from agl.http.client import HttpClient, Streamed
from agl.http.connections import HttpError, LostError
from agl.types.sse import DONE, EventTooLargeError, SseDecoder
from agl.types.weights import PolicyWeights

_MASK = "***"
_PATH = "/chat/completions"
_END_SECONDS = 0.25
"""How long a stream that has said it is done may take to end, so that its connection can be used again."""


@dataclass(frozen=True, slots=True)
class _Open:
    """What entering the engine makes."""

    key: str | None
    client: HttpClient


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
        self._base_url = _checked_url(base_url)
        self._url = self._base_url + _PATH
        if not model:
            raise ConfigError("inference.model: the name of a model")
        for name, value in (("timeout_seconds", timeout_seconds), ("connect_seconds", connect_seconds)):
            if not value > 0:
                raise ConfigError(f"inference.{name}={value}: more than 0")
        if max_connections < 1:
            raise ConfigError(f"inference.max_connections={max_connections}: at least 1")
        self._model = model
        self._api_key_env = api_key_env
        self._timeout_seconds = timeout_seconds
        self._connect_seconds = connect_seconds
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
        client = HttpClient(
            self._base_url,
            headers={} if key is None else {"authorization": f"Bearer {key}"},
            answer_seconds=self._timeout_seconds,
            connect_seconds=self._connect_seconds,
            max_connections=self._max_connections,
        )
        self._open = _Open(key, client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.client.close()

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a chat completion request with the server's answer.

        Raises:
            InferenceError: the server's status and body; 502 when it cannot be reached, 504 when it takes too long.
        """
        opened = self._entered()
        try:
            told = await opened.client.post(_PATH, orjson.dumps(self._worded(request)))
        except HttpError as error:
            raise _unanswered(self._url, error, opened.key) from error
        if not 200 <= told.status < 300:
            raise _refusal(self._url, told.status, told.body, opened.key)
        answer = _json_object(told.body)
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
        try:
            async with opened.client.posted(_PATH, body) as streamed:
                if not 200 <= streamed.status < 300:
                    raise _refusal(self._url, streamed.status, await streamed.beginning(), opened.key)
                async with aclosing(_chunks(self._url, streamed, opened.key)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                await _ended(streamed)
        except HttpError as error:
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


def _checked_url(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.username or parts.password:
        raise ConfigError(
            "inference.base_url: no user or password in the URL; name the key's variable in api_key_env"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"inference.base_url={base_url}: an http(s) URL such as https://api.openai.com/v1")
    if not parts.hostname.isascii():
        raise ConfigError(f"inference.base_url={base_url}: write the host in ASCII (xn--...)")
    return base_url.rstrip("/")


def _key_from(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"inference.api_key_env={variable}: this environment variable is not set")
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"inference.api_key_env={variable}: the variable's value is not a key (ASCII text)")
    return key


async def _chunks(url: str, streamed: Streamed, key: str | None) -> AsyncGenerator[dict[str, Any]]:
    """Yield the chunks in a stream of server-sent events until it says that it is done."""
    decoder = SseDecoder()
    try:
        while piece := await streamed.read():
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


async def _ended(streamed: Streamed) -> None:
    """Read what is left of a stream that is done, if that comes soon."""
    if not streamed.body.ended:
        with suppress(TimeoutError, HttpError):
            async with asyncio.timeout(_END_SECONDS):
                await streamed.read()


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


def _unanswered(url: str, error: HttpError, key: str | None) -> InferenceError:
    why = _masked(str(error), key)
    if isinstance(error, LostError) and error.late:
        return InferenceError(f"{url} did not answer in time ({why})", status=504)
    return InferenceError(f"{url} cannot be reached or broke off: {why}", status=502)


def _refusal(url: str, status: int, told: bytes, key: str | None) -> InferenceError:
    """The server's refusal with its body as it came, except that a key in it is masked."""
    text = _masked(told.decode("utf-8", "replace"), key)
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
