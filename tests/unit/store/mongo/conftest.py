"""A store on a database in memory, whose processes can be killed at any write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from fake_mongo import FakeClient, FakeMongo

from agl.store.mongo import MongoStore
from agl.store.mongo.access import Access

URL = "mongodb://fake"


class Clock:
    """A clock that only moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database() -> FakeMongo:
    return FakeMongo()


@pytest.fixture
def another(database: FakeMongo, clock: Clock) -> Callable[[], MongoStore]:
    """Makes the store of another process on the same database."""
    return lambda: MongoStore(URL, clock=clock, timeout_seconds=0.2, connect=FakeClient(database))  # pyright: ignore[reportArgumentType]


@pytest.fixture
async def store(another: Callable[[], MongoStore]) -> AsyncIterator[MongoStore]:
    async with another() as opened:
        yield opened


@pytest.fixture
def access(store: MongoStore) -> Access:
    return store._access
