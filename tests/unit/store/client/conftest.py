"""A scripted store, its client, and a clock that sleeping moves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from scripted_store import ScriptedStore, Time, client_of

from agl.store.client import HttpStore


@pytest.fixture
def server() -> ScriptedStore:
    return ScriptedStore()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def client(server: ScriptedStore, time: Time) -> AsyncIterator[HttpStore]:
    async with client_of(server, time=time) as opened:
        server.asked.clear()
        yield opened
