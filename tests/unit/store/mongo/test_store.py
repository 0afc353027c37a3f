from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_mongo import FakeClient, FakeMongo

import agl
from agl.errors import ConfigError, MissingExtraError, StoreError
from agl.store import mongo
from agl.store.mongo import MongoLightningStore, MongoStore
from agl.types import RolloutRequest


def test_the_settings_are_checked_before_anything_is_connected() -> None:
    for wrong in ({"url": "localhost"}, {"url": "mongodb://h", "database": "a b"}):
        with pytest.raises(ConfigError):
            MongoLightningStore(**wrong)


def test_secrets_are_not_shown() -> None:
    store = MongoLightningStore("mongodb://user:secret@h:1", prefix="p_")
    assert store.location == "mongodb://h:1/agl (p_*)"
    assert "secret" not in repr(store) + str(store)


def test_the_public_name_is_the_store() -> None:
    assert agl.MongoLightningStore is MongoLightningStore


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agl.errors.find_spec", lambda module: None)
    with pytest.raises(MissingExtraError, match=r"agl\[mongo\]"):
        mongo.__getattr__("MongoLightningStore")
    with pytest.raises(AttributeError):
        mongo.__getattr__("Nothing")


async def test_stores_of_one_database_keep_apart_by_prefix(database: FakeMongo, clock: Any) -> None:
    first = MongoStore("mongodb://h", prefix="a_", clock=clock, connect=FakeClient(database))  # pyright: ignore[reportArgumentType]
    second = MongoStore("mongodb://h", prefix="b_", clock=clock, connect=FakeClient(database))  # pyright: ignore[reportArgumentType]
    async with first, second:
        await first.enqueue_rollout(RolloutRequest(task="t", rollout_id="ro"))
        assert (await second.query_rollouts()).items == []
        assert (await first.health())["identity"] != (await second.health())["identity"]
    assert {name[:2] for name in database.collections} == {"a_", "b_"}


async def test_a_store_that_could_not_open_can_be_opened_later(
    database: FakeMongo, another: Callable[[], MongoStore]
) -> None:
    store = another()
    async with another():
        pass
    database["store"].documents["store"]["schema_version"] += 1
    with pytest.raises(StoreError):
        await store.open()
    database["store"].documents["store"]["schema_version"] -= 1
    async with store:
        assert (await store.health())["status"] == "ok"


async def test_closing_twice_is_closing(store: MongoStore) -> None:
    await store.close()
    await store.close()
