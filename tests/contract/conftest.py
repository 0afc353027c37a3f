"""The stores under contract: each test that takes ``store`` runs once for each implementation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from store_kinds import KINDS, Clock

from agl.store.base import LightningStore


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=list(KINDS))
async def store(
    request: pytest.FixtureRequest, clock: Clock, tmp_path: Path
) -> AsyncIterator[LightningStore]:
    kind = KINDS[request.param](tmp_path, clock)
    await kind.start()
    yield kind.store
    await kind.stop()
