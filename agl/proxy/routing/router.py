"""Router: an upstream made of many; chooses for each call, tries again elsewhere, and follows the store's endpoints."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Self

from agl.errors import InferenceError
from agl.proxy.refusal import CallRefusedError
from agl.proxy.routing.board import Board
from agl.proxy.routing.engine import EngineServer
from agl.proxy.routing.follow import EndpointFeed
from agl.proxy.routing.gate import Gate
from agl.proxy.routing.opening import opened
from agl.proxy.routing.target import Replica, Target
from agl.proxy.routing.tries import Tries
from agl.proxy.upstream import UPSTREAM, CallContext, Upstream
from agl.proxy.upstreams.base import CountingServer, Server
from agl.store.base import ResourceBook
from agl.types import ModelEndpoint

log = logging.getLogger(__name__)

Json = dict[str, Any]

_NOBODY = CallContext()
_COUNT = "count"
_VERSION, _VERSION_END = "policy_version", "policy_version_end"


class Router:
    """Answers calls with the endpoints of settings and store, and with the engine where none takes a call.

    Entering opens the endpoints and begins to follow the store; leaving closes all connections.

    Args:
        engine: answers what no endpoint takes; None leaves such calls without an answer.
        endpoints: by name, from settings; the store's stand beside them and win where a name is the same.
        store: whose newest endpoints are followed; None follows nothing.
        max_retries: how often a call is tried again with the servers of one endpoint.
        clock: seconds, never going back: the clock of ``CallContext.deadline``, the event loop's.
        rng: uniform numbers from 0 to 1.
        sleep: waits so many seconds.
        opener: makes the servers of an endpoint; None makes those that its settings name.

    Raises:
        ConfigError: an endpoint's settings contradict each other.
    """

    def __init__(
        self,
        engine: Upstream | None,
        *,
        endpoints: Mapping[str, ModelEndpoint] | None = None,
        store: ResourceBook | None = None,
        max_retries: int = 4,
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        opener: Callable[[str, ModelEndpoint], Target] | None = None,
    ) -> None:
        self._engine = EngineServer(engine, clock=clock) if engine is not None else None
        self._max_retries = max_retries
        self._clock = clock
        self._rng = rng
        self._sleep = sleep
        self._gate = Gate()
        self._board = Board(
            endpoints or {},
            feed=EndpointFeed(store) if store is not None else None,
            open_target=opener or partial(opened, engine=self._engine, rng=rng),
            clock=clock,
        )

    async def __aenter__(self) -> Self:
        try:
            await self._board.open()
        except BaseException:
            await self._board.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._board.aclose()

    @property
    def model(self) -> str:
        """The engine's model name; empty without an engine."""
        return self._engine.model if self._engine is not None else ""

    @property
    def models(self) -> Sequence[str]:
        """Every model name that a call can be routed by, the engine's first."""
        return list(dict.fromkeys([*([self.model] if self.model else []), *self._board.table.models]))

    def model_of_call(self, model: str, *, agent: str | None, mode: str | None) -> str | None:
        """Return the name of the model that an endpoint answers such a call with, None where none takes it."""
        return self._board.table.model_of_call(model, agent=agent, mode=mode)

    async def complete_chat(self, request: Mapping[str, Any], *, context: CallContext | None = None) -> Json:
        """Answer a canonical request.

        Raises:
            InferenceError: the last server's failure, or 503 while paused for too long.
            CallRefusedError: nobody can take the request.
        """
        call = context or _NOBODY
        await self._gate.enter(seconds=call.seconds_left(self._clock()))
        try:
            route = self._route(request, call)
            if not route:
                return await self._engine_for(request, call).complete(request, call)
            return await self._answered(route, call, lambda server: server.complete(request, call))
        finally:
            self._gate.leave()

    async def stream_chat(
        self, request: Mapping[str, Any], *, context: CallContext | None = None
    ) -> AsyncGenerator[Json]:
        """Answer a canonical request in chunks; another server is only tried before the first.

        Raises:
            InferenceError: the last server's failure, or 503 while paused for too long.
            CallRefusedError: nobody can take the request.
        """
        call = context or _NOBODY
        await self._gate.enter(seconds=call.seconds_left(self._clock()))
        try:
            route = self._route(request, call)
            if route:
                chunks = self._streamed(route, request, call)
            else:
                chunks = self._engine_for(request, call).stream(request, call)
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk
        finally:
            self._gate.leave()

    async def embed(self, body: Mapping[str, Any], *, context: CallContext | None = None) -> Json:
        """Answer an embeddings request.

        Raises:
            InferenceError: the last server's failure.
            CallRefusedError: 404, no endpoint serves embeddings of that model.
        """
        call = context or _NOBODY
        route = self._board.route(str(body.get("model")), agent=call.agent, mode=call.mode)
        if not route:
            message = f"no endpoint of the proxy serves embeddings of {body.get('model')!r}"
            raise CallRefusedError(message, status=404, code="no_embeddings", retry=False)
        answer = await self._answered(route, call, lambda server: server.embed(body))
        return {name: value for name, value in answer.items() if name not in (_VERSION, _VERSION_END)}

    async def count_tokens(
        self, request: Mapping[str, Any], *, context: CallContext | None = None
    ) -> int | None:
        """Return how many tokens the prompt of a canonical request has, None where only a call would tell.

        Raises:
            InferenceError: the last server's failure.
            CallRefusedError: nobody can take the request.
        """
        call = context or _NOBODY
        route = self._route(request, call)
        if not route:
            return await self._engine_for(request, call).count_tokens(request, call)
        if not isinstance(route[0].replicas[0].server, CountingServer):
            return None

        async def count(server: Server) -> Json:
            can = isinstance(server, CountingServer)
            return {_COUNT: await server.count_tokens(request, call) if can else None}

        return (await self._answered(route, call, count))[_COUNT]

    def paused(self, *, drain_seconds: float | None = None) -> AbstractAsyncContextManager[bool]:
        """Hold new calls of all models and wait until those under way have ended, for as long as the block lasts.

        New calls wait until their client's deadline. Yields whether all had ended within ``drain_seconds``.
        """
        return self._gate.paused(drain_seconds=drain_seconds)

    def engine_paused(self, *, drain_seconds: float | None = None) -> AbstractAsyncContextManager[bool]:
        """The same for the engine's calls alone: for a change of its weights. Calls of other models go on."""
        if self._engine is None:
            return nullcontext(enter_result=True)
        return self._engine.gate.paused(drain_seconds=drain_seconds)

    def pause(self) -> None:
        """Hold new calls."""
        self._gate.pause()

    async def drain(self, *, seconds: float | None = None) -> bool:
        """Wait until no call is under way; return False when some still are after so many seconds."""
        return await self._gate.drain(seconds=seconds)

    def resume(self) -> None:
        """Let calls in again."""
        self._gate.resume()

    def _route(self, request: Mapping[str, Any], call: CallContext) -> Sequence[Target]:
        """The targets that can answer the call; empty where it is the engine's."""
        route = self._board.route(request["model"], agent=call.agent, mode=call.mode)
        able = [target for target in route if target.takes(call)]
        if route and not able:
            if call.native_only is not None:
                raise call.native_only
            spoken = ", ".join(sorted({target.endpoint.upstream for target in route}))
            message = (
                f"model {request['model']!r} is served by an upstream of the kind {spoken}, which cannot be asked in "
                "this format; call it in its own, or route the model to one of the kind openai or litellm"
            )
            raise CallRefusedError(message, status=400, code="wrong_dialect", param="model")
        return able

    def _engine_for(self, request: Mapping[str, Any], call: CallContext) -> EngineServer:
        if call.native_only is not None:
            raise call.native_only
        if self._engine is None:
            served = ", ".join(self.models) or "none"
            message = (
                f"no endpoint of the proxy serves the model {request['model']!r}; the models it has: {served}"
            )
            raise CallRefusedError(message, status=404, code="model_not_found", param="model", retry=False)
        return self._engine

    def _tries(self, route: Sequence[Target], call: CallContext) -> Tries:
        return Tries(
            route,
            rollout_id=call.rollout_id,
            max_retries=self._max_retries,
            deadline=call.deadline,
            clock=self._clock,
            rng=self._rng,
        )

    async def _answered(
        self, route: Sequence[Target], call: CallContext, ask: Callable[[Server], Awaitable[Json]]
    ) -> Json:
        """The answer of the first server that gives one."""
        tries = self._tries(route, call)
        with _KeptOpen(route):
            while True:
                target, replica = tries.next()
                try:
                    answer = await replica.answer(ask)
                except InferenceError as error:
                    await self._after(error, replica, tries)
                else:
                    self._note(replica, None)
                    stamped = _stamped(answer, target)
                    return (
                        stamped if target.successor is None else stamped | _changed(answer, target, replica)
                    )

    async def _streamed(
        self, route: Sequence[Target], request: Mapping[str, Any], call: CallContext
    ) -> AsyncGenerator[Json]:
        """The chunks of the first server that gives one."""
        tries = self._tries(route, call)
        with _KeptOpen(route):
            while True:
                target, replica = tries.next()
                begun = False
                try:
                    async with replica.call() as server, aclosing(server.stream(request, call)) as chunks:
                        async for chunk in chunks:
                            if not begun:
                                yield _stamped(chunk, target)
                            elif target.successor is None:
                                yield chunk
                            else:
                                yield chunk | _changed(chunk, target, replica, name=_VERSION)
                            begun = True
                except InferenceError as error:
                    if begun:
                        self._note(replica, error)
                        raise
                    await self._after(error, replica, tries)
                else:
                    self._note(replica, None)
                    return

    async def _after(self, error: InferenceError, replica: Replica, tries: Tries) -> None:
        """Wait for the next try. Raises the error when there is none."""
        if tries.blames(replica) or not replica.breaker.is_closed:
            self._note(replica, error)
        pause = tries.pause_after(error)
        log.info("a call to %s failed and is tried again in %.3g s: %s", replica.name, pause, error)
        if pause:
            await self._sleep(pause)

    def _note(self, replica: Replica, error: InferenceError | None) -> None:
        if replica.note(error, now=self._clock()):
            log.warning("model server %s gets no calls until it answers again: %s", replica.name, error)


class _KeptOpen:
    """Keeps the targets' connections while a call goes along them, also when new endpoints replace them."""

    __slots__ = ("_route",)

    def __init__(self, route: Sequence[Target]) -> None:
        self._route = route

    def __enter__(self) -> None:
        for target in self._route:
            target.enter()

    def __exit__(self, *_: object) -> None:
        for target in self._route:
            target.leave()


def _changed(told: Json, target: Target, replica: Replica, *, name: str = _VERSION_END) -> Json:
    """The version of the weights now, under this name, if it is another than at dispatch and the server says none."""
    now = target.version_now(replica) if _VERSION not in told else None
    return {} if now is None or now == target.endpoint.policy_version else {name: now}


def _stamped(told: Json, target: Target) -> Json:
    """An answer, or a stream's first chunk, with who gave it and the version of its weights."""
    stamped = {**told, UPSTREAM: target.name}
    if target.endpoint.policy_version is not None:
        stamped.setdefault(_VERSION, target.endpoint.policy_version)
    return stamped
