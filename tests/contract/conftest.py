"""The stores under contract: each test that takes ``store`` runs once for each implementation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

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


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "file"])
async def store(
    request: pytest.FixtureRequest, clock: Clock, tmp_path: Path
) -> AsyncIterator[LightningStore]:
    path = ":memory:" if request.param == "memory" else str(tmp_path / "store.sqlite")
    async with SqliteStore(path, clock=clock) as opened:
        yield opened
