"""A network link on one machine that can be cut and mended: what TCP connections go through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Link:
    """Forwards connections while it is whole; cutting ends them all, and refuses further ones until it is mended."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._host, self._port = parts.hostname, parts.port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.num_connections = 0

    @property
    def url(self) -> str:
        """Where the link begins."""
        return f"http://127.0.0.1:{self.port}"

    async def mend(self) -> None:
        """Let connections through."""
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """End all connections and take no new ones."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
            self._writers.add(far_writer)
            try:
                await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
            finally:
                self._writers.discard(far_writer)
                far_writer.transport.abort()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.close()


@asynccontextmanager
async def link_to(target: str) -> AsyncGenerator[Link]:
    """A link that is whole, until the block ends."""
    link = Link(target)
    await link.mend()
    try:
        yield link
    finally:
        await link.cut()
