"""StoreAccess: where a run's other processes reach its store; served by this one, unless it is served already."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from agl.errors import ConfigError
from agl.http.listening import is_loopback
from agl.store.address import Addressable, StoreAddress
from agl.store.base import LightningStore
from agl.types.tokens import require_token


class StoreAccess:
    """Settings of the server that a run puts before its store, where a process outside of this one needs it.

    Args:
        host: the address to listen on; another than this machine's own needs a token.
        port: 0 takes a free one. A fixed one lets runners that joined find a resumed run again.
        token: what clients must send; None makes one up for the run.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> None:
        require_token(token, "store_server.token")
        if not is_loopback(host) and token is None:
            raise ConfigError(
                f"store_server.host={host} can be reached from other machines: set store_server.token"
                " (AGL_STORE_TOKEN), or use 127.0.0.1"
            )
        if not 0 <= port <= 65535:
            raise ConfigError(f"store_server.port={port}: a port is a number from 0 (any free one) to 65535")
        self.host, self.port, self.token = host, port, token

    @property
    def is_local(self) -> bool:
        """Whether only processes of this machine reach the server."""
        return is_loopback(self.host)

    @asynccontextmanager
    async def serving(
        self, store: LightningStore, *, token_file: Path | None = None
    ) -> AsyncGenerator[StoreAddress]:
        """Give the store's address until the block ends; serve it where nobody else does.

        Args:
            store: open.
            token_file: keeps a token that was made up, readable by its owner only, so that processes of the same user
                can join, and runners that joined are let in again when the run is resumed.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        if isinstance(store, Addressable):
            yield store.address
            return
        from agl.store.server import StoreServer

        token = self.token or kept_token(token_file)
        try:
            server = StoreServer(store, host=self.host, port=self.port, token=token, grace_seconds=0.5)
            async with server.serving() as url:
                yield StoreAddress(url=url, token=token)
        except ConfigError as error:
            if "cannot listen on" not in str(error):
                raise
            raise ConfigError(str(error).replace("set port=0", "set store_server.port=0")) from error


def kept_token(file: Path | None) -> str:
    """Return the token in the file; a new one, written there, where there is none."""
    if file is None:
        return secrets.token_urlsafe(24)
    with suppress(FileNotFoundError):
        kept = file.read_text(encoding="ascii").strip()
        if kept:
            return kept
    token = secrets.token_urlsafe(24)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as out:
        out.write(f"{token}\n")
    return token
