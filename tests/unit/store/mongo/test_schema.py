from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_mongo import FakeMongo

from agl.errors import StoreError
from agl.store.mongo import MongoStore
from agl.store.mongo.schema import INDEX_VERSION, SCHEMA_VERSION, indexes


async def test_the_identity_is_made_once(another: Callable[[], MongoStore]) -> None:
    seen: set[str] = set()
    for _ in range(2):
        async with another() as store:
            seen.add((await store.health())["identity"])
    assert len(seen) == 1


async def test_who_comes_second_takes_the_identity_of_the_first(
    database: FakeMongo, another: Callable[[], MongoStore]
) -> None:
    find = database["store"].find_one

    async def too_early(*args: object, **options: object) -> None:
        database["store"].find_one = find  # type: ignore[method-assign]

    async with another() as first:
        database["store"].find_one = too_early  # type: ignore[assignment]
        async with another() as second:
            assert (await second.health())["identity"] == (await first.health())["identity"]


async def test_a_newer_schema_is_refused_with_what_to_do(
    database: FakeMongo, another: Callable[[], MongoStore]
) -> None:
    async with another():
        pass
    database["store"].documents["store"]["schema_version"] = SCHEMA_VERSION + 1
    with pytest.raises(StoreError, match="use a newer agl"):
        await another().open()


async def test_indexes_of_an_older_version_are_made_anew(
    database: FakeMongo, another: Callable[[], MongoStore]
) -> None:
    async with another():
        pass
    database["store"].documents["store"]["indexes"] = INDEX_VERSION - 1
    database["rollouts"].unique.clear()
    async with another():
        pass
    assert set(database["rollouts"].unique) == {"attempt_ids", "slots"}
    assert database["store"].documents["store"]["indexes"] == INDEX_VERSION


def test_names_of_indexes_are_unique_and_short() -> None:
    for models in indexes().values():
        names = [model.document["name"] for model in models]
        assert len(names) == len(set(names))
        assert all(0 < len(name) < 64 for name in names)
