"""A model server in memory: what it is asked, and what it answers in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
import pytest

from agl.proxy.upstreams.http import HttpServer

URL = "http://model.test/v1"


@dataclass
class FakeModelServer(httpx.AsyncBaseTransport):
    """Answers with ``answers`` one after the other, the last one again and again. An exception is raised."""

    answers: list[Any] = field(default_factory=list)
    requests: list[httpx.Request] = field(default_factory=list)
    closed: int = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        await request.aread()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [orjson.loads(request.content) for request in self.requests]

    def stream(self, *pieces: bytes | Exception, status: int = 200) -> httpx.Response:
        """An answer in pieces; it counts when it is closed."""
        return httpx.Response(status, stream=_Pieces(self, pieces))


class _Pieces(httpx.AsyncByteStream):
    def __init__(self, server: FakeModelServer, pieces: tuple[bytes | Exception, ...]) -> None:
        self.server, self.pieces = server, pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            await asyncio.sleep(0)
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def aclose(self) -> None:
        self.server.closed += 1


@pytest.fixture
def model_server() -> FakeModelServer:
    return FakeModelServer()


@pytest.fixture
async def http(model_server: FakeModelServer):
    server = HttpServer(
        URL,
        headers={"authorization": "Bearer s3cret"},
        key="s3cret",
        timeout_seconds=5.0,
        connect_seconds=1.0,
        transport=model_server,
    )
    yield server
    await server.aclose()
