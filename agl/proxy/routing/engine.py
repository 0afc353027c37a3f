"""EngineServer: the engine beside the proxy as a server, with a gate that holds its calls while its weights change."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from agl.proxy.refusal import CallRefusedError
from agl.proxy.routing.gate import Gate
from agl.proxy.upstream import CallContext, TokenCounter, Upstream

Json = dict[str, Any]


class EngineServer:
    """Puts calls to an engine, each with the version of the weights that answer it. The engine is not closed here.

    Args:
        engine: answers.
        clock: seconds, never going back: the clock of ``CallContext.deadline``.
    """

    def __init__(self, engine: Upstream, *, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._clock = clock
        self.gate = Gate()
        """Pause it to change the weights."""

    @property
    def model(self) -> str:
        """The engine's model name."""
        return self._engine.model

    def takes(self, context: CallContext) -> bool:
        """All that can be said canonically."""
        return context.native_only is None

    async def complete(self, request: Mapping[str, Any], context: CallContext) -> Json:
        """Answer a canonical request, with the versions at dispatch and at the end where the engine says none.

        Raises:
            InferenceError: the engine's failure, or 503 while paused for too long.
        """
        await self.gate.enter(seconds=context.seconds_left(self._clock()))
        try:
            before = self._version()
            answer = await self._engine.complete_chat(request)
            after = self._version()
        finally:
            self.gate.leave()
        if before is None or "policy_version" in answer:
            return answer
        end = {} if after == before else {"policy_version_end": after}
        return {**answer, "policy_version": before, **end}

    async def stream(self, request: Mapping[str, Any], context: CallContext) -> AsyncGenerator[Json]:
        """Answer a canonical request in chunks, each with the version of its weights.

        Raises:
            InferenceError: the same.
        """
        await self.gate.enter(seconds=context.seconds_left(self._clock()))
        try:
            async with aclosing(self._engine.stream_chat(request)) as chunks:
                async for chunk in chunks:
                    version = self._version() if "policy_version" not in chunk else None
                    yield chunk if version is None else {**chunk, "policy_version": version}
        finally:
            self.gate.leave()

    async def count_tokens(self, request: Mapping[str, Any], context: CallContext) -> int | None:
        """Return how many tokens the engine counts in a prompt, None where it does not count."""
        del context
        return await self._engine.count_tokens(request) if isinstance(self._engine, TokenCounter) else None

    async def embed(self, body: Mapping[str, Any]) -> Json:
        """Refuse: engines have no embeddings.

        Raises:
            CallRefusedError: 404, always.
        """
        message = f"the engine that serves {body.get('model')!r} has no embeddings"
        raise CallRefusedError(message, status=404, code="no_embeddings", retry=False)

    async def probe(self) -> bool | None:
        """None: an engine is asked by calls alone."""
        return None

    async def aclose(self) -> None:
        """Leave the engine open."""

    def _version(self) -> int | None:
        version: object = getattr(self._engine, "policy_version", None)
        return version if isinstance(version, int) else None
