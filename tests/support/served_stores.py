"""The store's application asked without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from agl.store.base import LightningStore
from agl.store.server import create_app

START = 1_000_000.0


@asynccontextmanager
async def served(store: LightningStore, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Open a client of an application over an open store; ``settings`` are those of ``create_app``."""
    transport = httpx.ASGITransport(create_app(store, **settings))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client
