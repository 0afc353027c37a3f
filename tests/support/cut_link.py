"""A network link on one machine that can be cut and mended: what TCP connections go through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Link:
    """Forwards connections while it is whole.

    Cutting ends them all, and refuses further ones until it is mended. Stalling keeps them and lets nothing through.
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._host, self._port = parts.hostname, parts.port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._forwarding: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
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

    async def close(self) -> None:
        """Cut it for good; returns when nothing of it is left."""
        self.flow()
        await self.cut()
        await asyncio.gather(*self._forwarding, return_exceptions=True)

    def stall(self) -> None:
        """Let nothing through until ``flow``: what is sent meanwhile waits."""
        self._flowing.clear()

    def flow(self) -> None:
        """Let everything through, what has waited first."""
        self._flowing.set()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._forwarding.add(task)
        task.add_done_callback(self._forwarding.discard)
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
            self._writers.add(far_writer)
            try:
                await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
            finally:
                self._writers.discard(far_writer)
                far_writer.transport.abort()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
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
        await link.close()
