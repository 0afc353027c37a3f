"""ExternalEngine: a model behind any OpenAI-compatible URL; it answers calls and cannot be trained.

What it says to the server and hears from it is the proxy's own ``OpenAIServer``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Any, Self

from agl.errors import ConfigError, InferenceError
from agl.proxy.upstream import CallContext
from agl.proxy.upstreams.base import checked_url, key_from_environment
from agl.proxy.upstreams.http import HttpServer
from agl.proxy.upstreams.openai import OpenAIServer
from agl.types.weights import PolicyWeights

_NOBODY = CallContext()


class ExternalEngine:
    """Forwards calls to ``{base_url}/chat/completions``, those with a prompt to ``{base_url}/completions``.

    Args:
        base_url: up to and including the version, e.g. ``https://api.openai.com/v1``.
        model: the model name that requests use.
        api_key_env: the environment variable that holds the API key, read on entering; None sends no key.
        timeout_seconds: the longest wait for an answer.
        connect_seconds: the longest wait for a connection.
        max_connections: calls beyond so many at once wait for one to end.
        ask_for_token_ids: pass on vLLM's ``return_token_ids``; other servers may refuse a call that has it.
        ask_for_logprobs: pass on ``logprobs``, until the server refuses it; False passes none on.
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
        self._base_url = checked_url(base_url, "inference.base_url")
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
        self._server: OpenAIServer | None = None

    def __repr__(self) -> str:
        return f"ExternalEngine({self._base_url!r}, model={self._model!r})"

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
        key = key_from_environment(self._api_key_env, "inference.api_key_env")
        http = HttpServer(
            self._base_url,
            headers={} if key is None else {"authorization": f"Bearer {key}"},
            key=key,
            timeout_seconds=self._timeout_seconds,
            connect_seconds=self._connect_seconds,
            max_connections=self._max_connections,
        )
        logprobs = None if self._ask_for_logprobs else False
        self._server = OpenAIServer(http, model=None, token_ids=self._ask_for_token_ids, logprobs=logprobs)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._server = self._server, None
        if opened is not None:
            await opened.aclose()

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a chat completion request with the server's answer.

        Raises:
            InferenceError: the server's status and body; 502 when it cannot be reached, 504 when it takes too long.
        """
        return await self._entered().complete(request, _NOBODY)

    def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Answer a chat completion request with the chunks of the server's stream, as they come.

        Closing the generator closes the connection at once.

        Raises:
            InferenceError: the server's status and body; 502 when it cannot be reached, or its stream ends before it
                is done, 504 when it takes too long.
        """
        return self._entered().stream(request, _NOBODY)

    async def load_weights(self, weights: PolicyWeights) -> None:
        """Refuse: the weights are not ours to change.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"inference=external: the weights behind {self._base_url} cannot be set to version "
            f"{weights.policy_version}; train with another engine, e.g. inference=transformers, or use an algorithm "
            "without weights"
        )

    def _entered(self) -> OpenAIServer:
        if self._server is None:
            raise InferenceError(f"the engine for {self._base_url} is not open", status=503)
        return self._server
