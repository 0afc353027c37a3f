"""The implementations of the store under test: how each is opened, restarted and told the time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from mongo_server import mongo_server

from agl.store.base import LightningStore
from agl.store.client import HttpStore
from agl.store.mongo import MongoStore
from agl.store.server import StoreServer
from agl.store.sqlite import SqliteStore

START = 1_000_000.0


class Clock:
    """A clock that only moves when told to."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class MemoryKind:
    """SQLite in memory: a restart would lose everything, so there is none."""

    restarts = False
    """Whether ``restart`` keeps the records."""
    grace = False
    """Whether silence during a restart is forgiven: the store itself was away and could not listen."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._origin = self._made(folder, clock)

    def _made(self, folder: Path, clock: Clock) -> SqliteStore | MongoStore:
        return SqliteStore(":memory:", clock=clock)

    @property
    def store(self) -> LightningStore:
        """The store as callers use it."""
        return self._origin

    async def start(self) -> None:
        """Open the store."""
        await self._origin.open()

    async def stop(self) -> None:
        """Close the store."""
        await self._origin.close()

    async def restart(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Stop, let ``meanwhile`` happen, and start again on the same records."""
        await self._origin.close()
        meanwhile()
        await self._origin.open()

    async def sweep(self) -> None:
        """Let the watchdog look now."""
        await self._origin.sweep()


class FileKind(MemoryKind):
    """SQLite in a file."""

    restarts = True
    grace = True

    def _made(self, folder: Path, clock: Clock) -> SqliteStore:
        return SqliteStore(str(folder / "store.sqlite"), clock=clock)


class MongoKind(MemoryKind):
    """MongoDB, of which the session has one server; each store begins with empty collections."""

    restarts = True
    grace = True

    def _made(self, folder: Path, clock: Clock) -> MongoStore:
        server = mongo_server()
        server.clear()
        return MongoStore(server.url, journal=False, clock=clock)


class HttpMemoryKind(MemoryKind):
    """SQLite in memory behind a real server, and the client that talks to it over HTTP. Both in this event loop.

    A restart is the server's: the store stays open, and the client notices nothing but the time it takes.
    """

    restarts = True

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder, clock)
        self._port = 0
        self._client: HttpStore | None = None
        self._serving = AsyncExitStack()

    @property
    def store(self) -> LightningStore:
        """The client."""
        assert self._client is not None, "started first"
        return self._client

    async def start(self) -> None:
        """Open the store, serve it, and connect."""
        await super().start()
        await self._serve()

    async def stop(self) -> None:
        """Close the client, the server and the store."""
        await self.store.close()
        await self._serving.aclose()
        await super().stop()

    async def restart(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Stop serving, let ``meanwhile`` happen, and serve again at the same address."""
        await self._serving.aclose()
        meanwhile()
        await self._serve()

    async def _serve(self) -> None:
        server = StoreServer(self._origin, port=self._port)
        url = await self._serving.enter_async_context(server.serving())
        self._port = int(url.rpartition(":")[2])
        if self._client is None:
            self._client = HttpStore(url)
            await self._client.open()


class HttpFileKind(HttpMemoryKind, FileKind):
    """The same over a file, which a restart closes and opens, too."""

    async def restart(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Stop serving, close the store, let ``meanwhile`` happen, open it and serve again at the same address."""
        await self._serving.aclose()
        await FileKind.restart(self, meanwhile)
        await self._serve()


class HttpMongoKind(HttpFileKind):
    """The same over MongoDB."""

    _made = MongoKind._made


KINDS: dict[str, type[MemoryKind]] = {
    "memory": MemoryKind,
    "file": FileKind,
    "http-memory": HttpMemoryKind,
    "http-file": HttpFileKind,
    "mongo": MongoKind,
}
"""Each implementation by the name that tests show. Each test of the contract runs on every one."""
WALKED = {**KINDS, "http-mongo": HttpMongoKind}
"""Those that the random walk goes through."""
