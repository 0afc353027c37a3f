from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from fake_mongo import FakeClient, FakeMongo
from pymongo.errors import AutoReconnect, InvalidURI, OperationFailure
from pymongo.write_concern import WriteConcern

from agl.errors import StoreError, StoreUnavailableError
from agl.store.mongo import MongoStore
from agl.store.mongo.access import Access


def test_nothing_is_connected_before_open(database: FakeMongo) -> None:
    client = FakeClient(database)
    MongoStore("mongodb://user:secret@h", connect=client)  # pyright: ignore[reportArgumentType]
    assert client.options == {}


async def test_the_server_is_looked_for_as_long_as_was_set_and_writes_are_journaled(
    database: FakeMongo,
) -> None:
    client = FakeClient(database)
    async with MongoStore("mongodb://h", timeout_seconds=1.5, connect=client):  # pyright: ignore[reportArgumentType]
        assert client.options["serverSelectionTimeoutMS"] == 1500
        assert client.options["journal"] is True
    async with MongoStore("mongodb://h", journal=False, connect=client):  # pyright: ignore[reportArgumentType]
        assert "journal" not in client.options
    assert client.closed


@pytest.mark.parametrize(
    ("hello", "in_url", "expected"),
    [
        ({}, {}, {}),
        ({"setName": "rs0"}, {}, {"w": "majority", "j": True}),
        ({"msg": "isdbgrid"}, {}, {"w": "majority", "j": True}),
        ({"setName": "rs0"}, {"w": 1}, {"w": 1}),
    ],
)
async def test_a_replica_set_acknowledges_what_most_of_it_has(
    database: FakeMongo, hello: dict[str, Any], in_url: dict[str, Any], expected: dict[str, Any]
) -> None:
    client = FakeClient(database, hello)
    client.write_concern = WriteConcern(**in_url)
    async with MongoStore("mongodb://h", connect=client):  # pyright: ignore[reportArgumentType]
        assert client.database_concern.document == expected


async def test_a_call_that_did_not_reach_the_server_is_repeated(access: Access) -> None:
    failures = [AutoReconnect("gone"), OperationFailure("stepped down", 189)]

    async def operation() -> str:
        if failures:
            raise failures.pop()
        return "answer"

    assert await access.call(operation) == "answer"


async def test_a_server_that_stays_away_is_reported_in_time_and_without_secrets(database: FakeMongo) -> None:
    store = MongoStore("mongodb://u:secret@h", timeout_seconds=0.1, connect=FakeClient(database))  # pyright: ignore[reportArgumentType]
    await store.open()

    async def operation() -> str:
        raise AutoReconnect("mongodb://u:secret@h gone")

    with pytest.raises(StoreUnavailableError, match=r"mongodb://h/agl does not answer") as failed:
        await asyncio.wait_for(store._access.call(operation), 10)
    assert "secret" not in str(failed.value)
    await store.close()


async def test_what_the_server_refuses_is_not_repeated(access: Access) -> None:
    calls = 0

    async def operation() -> str:
        nonlocal calls
        calls += 1
        raise OperationFailure("not authorized", 13)

    with pytest.raises(StoreError, match="code 13"):
        await access.call(operation)
    assert calls == 1


async def test_a_url_that_the_driver_refuses_is_an_error_without_the_url(clock: Any) -> None:
    def connect(url: str, **options: Any) -> Any:
        raise InvalidURI(f"no: {url}")

    store = MongoStore("mongodb://u:sec ret@h", clock=clock, connect=connect)
    with pytest.raises(StoreError, match="the URL of mongodb://h/agl") as failed:
        await store.open()
    assert "sec ret" not in str(failed.value)


async def test_the_time_is_the_databases(database: FakeMongo) -> None:
    hello = {"localTime": datetime(2040, 1, 1, tzinfo=UTC)}
    async with MongoStore("mongodb://h", connect=FakeClient(database, hello)) as store:  # pyright: ignore[reportArgumentType]
        worker = await store.register_worker("w")
    assert abs(worker.registered_at - datetime(2040, 1, 1, tzinfo=UTC).timestamp()) < 60


async def test_stamps_grow_though_the_clock_stands(access: Access, clock: Any) -> None:
    stamps = [access.stamp() for _ in range(3)]
    clock.now -= 5.0
    stamps.append(access.stamp())
    assert stamps == [stamps[0], stamps[0] + 1, stamps[0] + 2, stamps[0] + 3]
    assert stamps[0] == 1_000_000_000


async def test_numbers_are_handed_out_once(access: Access) -> None:
    firsts = await asyncio.gather(*(access.numbers(3) for _ in range(4)))
    assert sorted(firsts) == [1, 4, 7, 10]


async def test_a_closed_store_refuses_calls_and_closing_waits_for_errands(store: MongoStore) -> None:
    done = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0)
        done.set()

    store._access.errand(work())
    await store.close()
    assert done.is_set()
    with pytest.raises(StoreUnavailableError, match="not open"), store._access.visit():
        pass
    with pytest.raises(StoreUnavailableError):
        await store.health()


async def test_a_store_opens_once(store: MongoStore) -> None:
    with pytest.raises(StoreError, match="open already"):
        await store.open()
