"""ExternalEngine: a model behind any OpenAI-compatible URL; it answers calls and cannot be trained."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import urlsplit

import httpx
import orjson

from agl.errors import ConfigError, InferenceError
from agl.types.weights import PolicyWeights

_MASK = "***"


class ExternalEngine:
    """Forwards calls to ``{base_url}/chat/completions``.

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
        self._client: httpx.AsyncClient | None = None
        self._key: str | None = None

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
        self._key = _key_from(self._api_key_env)
        headers = {"content-type": "application/json"}
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key}"
        limits = httpx.Limits(
            max_connections=self._max_connections, max_keepalive_connections=self._max_connections
        )
        self._client = httpx.AsyncClient(headers=headers, timeout=self._timeout, limits=limits)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client, self._client, self._key = self._client, None, None
        if client is not None:
            await client.aclose()

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a chat completion request with the server's answer.

        Raises:
            InferenceError: the server's status and body; 502 when it cannot be reached, 504 when it takes too long.
        """
        client, key = self._client, self._key
        if client is None:
            raise InferenceError(f"the engine for {self._url} is not open", status=503)
        try:
            response = await client.post(self._url, content=orjson.dumps(self._worded(request)))
        except httpx.TimeoutException as error:
            raise InferenceError(
                f"{self._url} did not answer in time ({_why(error, key)})", status=504
            ) from error
        except httpx.HTTPError as error:
            raise InferenceError(f"{self._url} cannot be reached: {_why(error, key)}", status=502) from error
        if not response.is_success:
            raise _refusal(self._url, response, key)
        try:
            answer: object = orjson.loads(response.content)
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise InferenceError(f"{self._url} answered with something else than a JSON object", status=502)
        return cast("dict[str, Any]", answer)

    async def load_weights(self, weights: PolicyWeights) -> None:
        """Refuse: the weights are not ours to change.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"inference=external: the weights behind {self._url} cannot be set to version {weights.policy_version}; "
            "train with another engine, e.g. inference=transformers, or use an algorithm without weights"
        )

    def _worded(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The request without what this server is not asked for."""
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
