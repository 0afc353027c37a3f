"""The implementations of the store under test: how each is opened, restarted and told the time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agl.store.base import LightningStore
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
        self._sqlite = SqliteStore(self._path(folder), clock=clock)

    def _path(self, folder: Path) -> str:
        return ":memory:"

    @property
    def store(self) -> LightningStore:
        """The store as callers use it; another object after a restart, perhaps."""
        return self._sqlite

    async def start(self) -> None:
        """Open the store."""
        await self._sqlite.open()

    async def stop(self) -> None:
        """Close the store."""
        await self._sqlite.close()

    async def restart(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Stop, let ``meanwhile`` happen, and start again on the same records."""
        await self.stop()
        meanwhile()
        await self.start()

    async def sweep(self) -> None:
        """Let the watchdog look now."""
        await self._sqlite.sweep()


class FileKind(MemoryKind):
    """SQLite in a file."""

    restarts = True
    grace = True

    def _path(self, folder: Path) -> str:
        return str(folder / "store.sqlite")


KINDS: dict[str, type[MemoryKind]] = {"memory": MemoryKind, "file": FileKind}
"""Each implementation by the name that tests show."""
