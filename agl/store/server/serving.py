"""StoreServer: the settings of the store's HTTP server, and its service on the caller's event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn

from agl.errors import ConfigError
from agl.http.listening import BACKLOG, KEEP_ALIVE_SECONDS, EmbeddedServer, is_loopback, listening, url_of
from agl.http.served import Connection, ConnectionLimits, raised_file_limit
from agl.store.base import LightningStore
from agl.store.server.app import create_app
from agl.store.wire import DEFAULT_PORT
from agl.types.tokens import require_token


class StoreServer:
    """Where the store's HTTP API listens and what it lets in.

    Args:
        store: what is served; opened and closed by the caller.
        host: the address to listen on; another than this machine's own needs a token.
        port: 0 takes a free one.
        token: what admins must send as ``Authorization: Bearer``; None asks for nothing.
        read_only: refuse what changes the store.
        max_body_bytes: the largest request body, as it comes and unpacked.
        max_connections: the most clients at once, waiting ones included.
        grace_seconds: how long requests under way may take when the server stops.
    """

    def __init__(
        self,
        store: LightningStore,
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        token: str | None = None,
        read_only: bool = False,
        max_body_bytes: int = 67108864,
        max_connections: int = 20000,
        grace_seconds: float = 3.0,
    ) -> None:
        require_token(token, "token")
        if not is_loopback(host) and token is None:
            raise ConfigError(
                f"host={host} can be reached from other machines: set token (AGL_STORE_TOKEN), or use 127.0.0.1"
            )
        if not 0 <= port <= 65535:
            raise ConfigError(f"port={port}: a port is a number from 0 (any free one) to 65535")
        if max_body_bytes < 1:
            raise ConfigError(f"max_body_bytes={max_body_bytes}: at least 1")
        if max_connections < 1:
            raise ConfigError(f"max_connections={max_connections}: at least 1")
        if not grace_seconds >= 0:
            raise ConfigError(f"grace_seconds={grace_seconds}: 0 or more")
        self.store = store
        self.host = host
        self.port = port
        self.token = token
        self.read_only = read_only
        self.max_body_bytes = max_body_bytes
        self.max_connections = max_connections
        self.grace_seconds = grace_seconds

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        """Serve until the block ends; yields the URL.

        On the way out nobody new is let in, long polls answer with what they have, and other requests under way get
        ``grace_seconds`` before they are refused.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        app = create_app(
            self.store,
            token=self.token,
            read_only=self.read_only,
            max_body_bytes=self.max_body_bytes,
            hosts=(self.host,),
        )
        limits = ConnectionLimits(max_connections=raised_file_limit(self.max_connections))
        with listening(self.host, self.port, who="the store") as listener:
            config = uvicorn.Config(
                app,
                http=functools.partial(Connection, limits),  # pyright: ignore[reportArgumentType] - it calls it, no more
                ws="none",
                loop="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="critical",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=self.grace_seconds,  # pyright: ignore[reportArgumentType] - a float does
            )
            config.load()  # here, so that what it raises is not lost in the server's task
            server = EmbeddedServer(config)
            task = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield url_of(self.host, listener)
            finally:
                app.polls.release()
                server.should_exit = True
                await task
