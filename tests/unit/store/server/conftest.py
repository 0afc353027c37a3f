"""The application over a store in memory, asked without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from served_stores import START, served

from agl.store.sqlite import SqliteStore


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    async with SqliteStore(":memory:", clock=lambda: START) as opened:
        yield opened


@pytest.fixture
async def client(store: SqliteStore) -> AsyncIterator[httpx.AsyncClient]:
    async with served(store) as opened:
        yield opened
