"""Upstream: what the proxy forwards calls to; an engine in this process is one.

A ``RoutedUpstream`` also wants to know whose call it is: it chooses among several, and may pass a call through in the
client's own wire format.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from agl.proxy.dialects.base import Dialect
from agl.proxy.refusal import CallRefusedError

NATIVE = "agl.native"
"""The key of an answer or chunk that holds what a client of the same wire format is to see unchanged.

On an answer: the body, as bytes. On every chunk of a stream: a ``NativeEvent``. It is there only where the call was
passed through to an upstream of the client's own format; whoever words the answer takes it out.
"""
UPSTREAM = "agl.upstream"
"""The key of an answer, or of a stream's first chunk, that names the upstream which answered."""


class Upstream(Protocol):
    """Answers chat completion requests. ``agl.inference.base.Engine`` satisfies it."""

    @property
    def model(self) -> str:
        """The model name that requests use."""
        ...

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request in OpenAI's format, with vLLM's names for the exact ids where it knows them.

        Cancelling the coroutine gives the call up.

        Raises:
            InferenceError: with the status and body that the agent is to see.
        """
        ...

    def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Answer a request in chunks as they are sampled; ``agl.proxy.dialects.base`` says what is in them.

        Closing the generator gives the call up.

        Raises:
            InferenceError: from the first ``__anext__`` with the status and body that the agent is to see, from a
                later one when the call fails half-way.
        """
        ...


@runtime_checkable
class TokenCounter(Protocol):
    """An upstream that can count a prompt's tokens without sampling."""

    async def count_tokens(self, request: Mapping[str, Any]) -> int:
        """Return how many tokens the prompt of a canonical request has.

        Raises:
            InferenceError: with the status and body that the client is to see.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeEvent:
    """One server-sent event of a call that is passed through."""

    data: bytes
    """The event as it came, its framing included; empty on further chunks that the same event says."""
    last: bool
    """The client takes it as the end of the answer: the call must be durable before it is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """Whose call it is, and how the client worded it: what a route is chosen by.

    Args:
        rollout_id: calls of one rollout stay with one replica.
        attempt_id: the attempt that calls.
        agent: the agent's name, where the URL has one.
        mode: of the rollout: ``train``, ``val`` or ``test``.
        deadline: the event loop's time until which the client waits; None leaves it to the upstream's time limit.
        dialect: the client's wire format; None where the call came canonically.
        native: the body as the client sent it.
        native_only: raised where no upstream of the route has the client's format.
        forced: the request parameters that resources force, ``model`` among them; a native body gets them too.
        headers: names in lower case; only those that a native upstream needs, such as ``anthropic-version`` and
            ``anthropic-beta``; never a key.
    """

    rollout_id: str = ""
    attempt_id: str = ""
    agent: str | None = None
    mode: str | None = None
    deadline: float | None = None
    dialect: Dialect | None = None
    native: Mapping[str, Any] = field(default_factory=dict[str, Any])
    native_only: CallRefusedError | None = None
    forced: Mapping[str, Any] = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def seconds_left(self, now: float) -> float | None:
        """Return how long the client still waits, None where that has no limit."""
        return None if self.deadline is None else max(self.deadline - now, 0.0)


@runtime_checkable
class RoutedUpstream(Protocol):
    """An upstream that chooses by a call's context. ``agl.proxy.routing.Router`` is one."""

    @property
    def model(self) -> str:
        """The model name of the default upstream; empty where there is none."""
        ...

    @property
    def models(self) -> Sequence[str]:
        """Every model name that a call can be routed by, the default's first."""
        ...

    def model_of_call(self, model: str, *, agent: str | None, mode: str | None) -> str | None:
        """Return the name of the model that an endpoint answers such a call with, None where none takes it.

        A route by agent turns the call into one of the endpoint's model; else the name is the call's own. The name is
        what is put to the upstream and recorded. Resources force their sampling on it only where a ProxyLLM has that
        name; where None is returned they are the attempt's ``llm``, as without endpoints.
        """
        ...

    async def complete_chat(
        self, request: Mapping[str, Any], *, context: CallContext | None = None
    ) -> dict[str, Any]:
        """Answer as ``Upstream.complete_chat`` does; the answer may hold NATIVE and holds UPSTREAM.

        Raises:
            InferenceError: the last upstream's failure.
            CallRefusedError: no upstream of the route can take the request.
        """
        ...

    def stream_chat(
        self, request: Mapping[str, Any], *, context: CallContext | None = None
    ) -> AsyncGenerator[dict[str, Any]]:
        """Stream as ``Upstream.stream_chat`` does; a chunk may hold NATIVE, the first holds UPSTREAM.

        Raises:
            InferenceError: the last upstream's failure.
            CallRefusedError: from the first ``__anext__``: no upstream of the route can take the request.
        """
        ...

    async def embed(self, body: Mapping[str, Any], *, context: CallContext | None = None) -> dict[str, Any]:
        """Answer an embeddings request with the upstream's answer.

        Raises:
            InferenceError: the upstream's failure.
            CallRefusedError: the upstream of the route has no embeddings.
        """
        ...

    async def count_tokens(
        self, request: Mapping[str, Any], *, context: CallContext | None = None
    ) -> int | None:
        """Return how many tokens the prompt of a canonical request has, None where only a call would tell.

        Raises:
            InferenceError: the upstream's failure.
            CallRefusedError: no upstream of the route can take the request.
        """
        ...
