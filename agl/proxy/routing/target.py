"""Target: one endpoint of the route table with its open servers; it closes when it was replaced and its calls ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from agl.errors import InferenceError
from agl.proxy.routing.choice import Seats, candidates
from agl.proxy.routing.health import Breaker
from agl.proxy.upstream import CallContext
from agl.proxy.upstreams.base import Server, UpstreamError
from agl.types import ModelEndpoint

T = TypeVar("T")


class Replica:
    """One server of an endpoint, with its load and health.

    Args:
        name: its URL.
        server: what answers.
        max_concurrency: calls to it at once; more wait. None sets no limit.
        rng: uniform numbers from 0 to 1.
    """

    def __init__(
        self, name: str, server: Server, *, max_concurrency: int | None, rng: Callable[[], float]
    ) -> None:
        self.name = name
        self.server = server
        self.breaker = Breaker(rng=rng)
        self.calls = 0
        self._slots = asyncio.Semaphore(max_concurrency) if max_concurrency is not None else None

    async def answer(self, ask: Callable[[Server], Awaitable[T]]) -> T:
        """Return what the server answers; the same as within ``call``, at less cost."""
        if self._slots is not None:
            async with self.call() as server:
                return await ask(server)
        self.calls += 1
        try:
            return await ask(self.server)
        finally:
            self.calls -= 1

    @asynccontextmanager
    async def call(self) -> AsyncGenerator[Server]:
        """Count a call from its choice on, and wait for a slot."""
        self.calls += 1
        try:
            if self._slots is None:
                yield self.server
                return
            async with self._slots:
                yield self.server
        finally:
            self.calls -= 1

    def note(self, error: InferenceError | None, *, now: float) -> bool:
        """Take a call's outcome into account; return whether the server has just become unwell."""
        if isinstance(error, UpstreamError) and error.sick:
            return self.breaker.failed(now)
        if error is None or error.status != 429:
            self.breaker.succeeded()
        return False


class Target:
    """An endpoint and its replicas.

    Args:
        name: of the endpoint.
        endpoint: its settings.
        replicas: its servers; at least one.
    """

    def __init__(self, name: str, endpoint: ModelEndpoint, replicas: Sequence[Replica]) -> None:
        self.name = name
        self.endpoint = endpoint
        self.replicas = replicas
        self.successor: Target | None = None
        """What replaced it while it was in force, None as long as nothing has."""
        self._names = [replica.name for replica in replicas]
        self._seats = Seats()
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    def takes(self, context: CallContext) -> bool:
        """Whether the servers speak what the call needs."""
        return self.replicas[0].server.takes(context)

    def version_now(self, replica: Replica) -> int | None:
        """Return the version of the weights that a replica holds now, as the newest endpoint that has it says."""
        version, target = self.endpoint.policy_version, self.successor
        while target is not None and any(other.name == replica.name for other in target.replicas):
            version, target = target.endpoint.policy_version, target.successor
        return version

    def is_well(self, now: float) -> bool:
        """Whether any server can be expected to answer."""
        return any(replica.breaker.is_closed or replica.breaker.is_due(now) for replica in self.replicas)

    def choose(self, rollout_id: str, *, tried: set[int], now: float) -> int:
        """Return the index of the replica for a rollout's next try."""
        if len(self.replicas) == 1:
            return 0
        well = candidates(
            self.replicas,
            tried=tried,
            is_well=lambda replica: replica.breaker.is_closed,
            is_due=lambda replica: replica.breaker.is_due(now),
        )
        loads = [replica.calls for replica in self.replicas]
        return self._seats.choose(rollout_id, loads, well=well, names=self._names)

    def has_other(self, tried: set[int]) -> bool:
        """Whether a well server is left that was not tried."""
        return any(
            replica.breaker.is_closed for index, replica in enumerate(self.replicas) if index not in tried
        )

    def enter(self) -> None:
        """Keep the servers open for a call."""
        self._users += 1
        self._unused.clear()

    def leave(self) -> None:
        """Let go of them."""
        self._users -= 1
        if not self._users:
            self._unused.set()

    async def retire(self) -> None:
        """Close the servers once the calls under way have ended."""
        await self._unused.wait()
        await self.aclose()

    async def aclose(self) -> None:
        """Close the servers now."""
        for replica in self.replicas:
            await replica.server.aclose()
