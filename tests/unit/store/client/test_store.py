"""The client store whole: its settings, what it shows, and its use from several event loops."""

from __future__ import annotations

import asyncio
import threading

import pytest
from scripted_store import URL, ScriptedStore, client_of

from agl.errors import ConfigError, StoreUnavailableError
from agl.store.client import LightningStoreClient
from agl.store.client.store import random_id


def test_it_shows_its_url_and_never_its_token() -> None:
    client = LightningStoreClient(URL, token="s3cret")
    assert repr(client) == f"LightningStoreClient('{URL}')"
    assert client.location == URL
    assert "s3cret" not in repr(vars(client))


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"url": "nowhere"}, "store.url"),
        ({"url": URL, "token": ""}, "store.token"),
        ({"url": URL, "retry_seconds": -1.0}, "store.retry_seconds"),
        ({"url": URL, "retry_seconds": float("nan")}, "store.retry_seconds"),
        ({"url": URL, "open_seconds": -1.0}, "store.open_seconds"),
        ({"url": URL, "answer_seconds": 0.0}, "store.answer_seconds"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, object], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        LightningStoreClient(**settings)  # pyright: ignore[reportArgumentType]


async def test_a_store_that_is_not_open_says_so(server: ScriptedStore) -> None:
    client = client_of(server)
    for call in (client.statistics, client.health):
        with pytest.raises(StoreUnavailableError, match="use it inside `async with store:`"):
            await call()


async def test_statistics_are_of_a_run_or_of_all(server: ScriptedStore) -> None:
    server.on("GET /v1/statistics", lambda one: {"asked": one.target})
    async with client_of(server) as client:
        assert await client.statistics() == {"asked": "/v1/statistics"}
        assert await client.statistics(run_id="r") == {"asked": "/v1/statistics?run_id=r"}


def test_event_loops_one_after_the_other_have_connections_of_their_own(server: ScriptedStore) -> None:
    client = client_of(server)
    asyncio.run(client.open())
    for _ in range(3):
        asyncio.run(client.health())
    asyncio.run(client.close())
    assert len(server.connections) == 4
    assert all(line.is_closing() for line in server.connections)


def test_threads_share_an_open_store(server: ScriptedStore) -> None:
    client = client_of(server)
    asyncio.run(client.open())
    found: list[str] = []

    async def several() -> None:
        found.extend([(await client.health())["status"] for _ in range(5)])

    threads = [threading.Thread(target=lambda: asyncio.run(several())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["ok"] * 20
    asyncio.run(client.close())


async def test_closing_in_one_loop_ends_the_calls_of_others(server: ScriptedStore) -> None:
    client = client_of(server)
    await client.open()
    waiting, ended = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    async def call() -> None:
        server.on("GET /v1/statistics", lambda _: _held(waiting))
        try:
            await client.statistics()
        except StoreUnavailableError as error:
            errors.append(error)

    def elsewhere() -> None:
        asyncio.run(call())
        ended.set()

    threading.Thread(target=elsewhere).start()
    await asyncio.to_thread(waiting.wait, 10)
    await client.close()
    assert await asyncio.to_thread(ended.wait, 10)
    assert "closed on this side" in str(errors[0])


async def _held(waiting: threading.Event) -> object:
    waiting.set()
    return await asyncio.get_running_loop().create_future()


def test_ids_are_of_the_systems_randomness() -> None:
    made = {random_id("ro") for _ in range(100)}
    assert len(made) == 100
    assert all(len(one) == len("ro-") + 16 for one in made)
