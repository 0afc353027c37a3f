"""Servers in memory that answer from a script, and a clock that only moves when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import pytest

from agl.proxy.routing.target import Replica, Target
from agl.proxy.upstreams.base import UpstreamError
from agl.types import ModelEndpoint


def answer(name: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": name}}]}


@dataclass
class FakeServer:
    """Fails with ``failures`` one after the other, then answers with its name."""

    name: str
    failures: list[Exception] = field(default_factory=list)
    breaks_after: int | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    alive: bool | None = True
    probes: int = 0
    closed: int = 0
    able: bool = True
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)
    streams_closed: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    def takes(self, context: Any) -> bool:
        return self.able

    async def complete(self, request: Any, context: Any) -> dict[str, Any]:
        self.asked.append(dict(request))
        self.was_asked.set()
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        return answer(self.name)

    async def stream(self, request: Any, context: Any) -> AsyncGenerator[dict[str, Any]]:
        self.asked.append(dict(request))
        self.was_asked.set()
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        try:
            for place in range(3):
                if place == self.breaks_after:
                    raise sick()
                yield {"choices": [{"index": 0, "delta": {"content": f"{self.name}{place}"}}]}
        finally:
            self.streams_closed += 1

    async def embed(self, body: Any) -> dict[str, Any]:
        if self.failures:
            raise self.failures.pop(0)
        return {"data": [], "by": self.name}

    async def probe(self) -> bool | None:
        self.probes += 1
        return self.alive

    async def aclose(self) -> None:
        self.closed += 1


@dataclass
class FakeClock:
    now: float = 100.0
    pauses: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def sick(status: int = 503, retry_after: float | None = None) -> UpstreamError:
    return UpstreamError("down", status=status, retry=True, sick=status >= 500, retry_after=retry_after)


def target(name: str, *servers: FakeServer, **settings: Any) -> Target:
    endpoint = ModelEndpoint(**{"model": "m", "urls": ("http://x/v1",)} | settings)
    replicas = [
        Replica(server.name, server, max_concurrency=endpoint.max_concurrency, rng=lambda: 0.0)
        for server in servers
    ]
    return Target(name, endpoint, replicas)


@pytest.fixture
def new_server() -> type[FakeServer]:
    return FakeServer


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def failure() -> Any:
    return sick


@pytest.fixture
def new_target() -> Any:
    return target
