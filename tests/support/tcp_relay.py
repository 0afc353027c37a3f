"""A relay between a client and a server that can lose answers, and can speak TLS to the client."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

TLS = Path(__file__).parents[1] / "data" / "loopback_tls.pem"
"""A self-signed certificate of 127.0.0.1 with its key."""


class Relay:
    """Hands bytes on. While ``loses_answers`` is set, requests arrive and their answers do not: the connection ends."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.loses_answers = False
        self.lost = 0

    @asynccontextmanager
    async def serving(self, *, tls: bool = False) -> AsyncGenerator[str]:
        """Serve until the block ends; yields the URL."""
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS)
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0, ssl=context)
        try:
            port = server.sockets[0].getsockname()[1]
            yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        finally:
            server.close()
            await server.wait_closed()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
        with suppress(OSError):
            await asyncio.gather(
                self._copy(reader, up_writer, may_lose=False), self._copy(up_reader, writer, may_lose=True)
            )
        for one in (writer, up_writer):
            one.close()

    async def _copy(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, *, may_lose: bool) -> None:
        while data := await source.read(65536):
            if may_lose and self.loses_answers:
                self.lost += 1
                to.transport.abort()
                raise ConnectionResetError
            to.write(data)
            await to.drain()
        to.close()
