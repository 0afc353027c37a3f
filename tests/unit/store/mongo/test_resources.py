from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fake_mongo import FakeMongo

from agl.errors import NotFoundError
from agl.store.mongo import MongoStore, resources
from agl.store.mongo.access import Access


async def test_processes_that_add_at_once_get_versions_of_their_own(
    store: MongoStore, another: Callable[[], MongoStore]
) -> None:
    async with another() as other:
        named = await asyncio.gather(
            *(one.add_resources({"n": number}) for number in range(6) for one in (store, other))
        )
    assert sorted(one.version for one in named) == list(range(1, 13))


async def test_a_repeat_whose_first_answer_was_lost_names_one_version(
    store: MongoStore, database: FakeMongo
) -> None:
    database.lose_answers(1)
    first = await store.add_resources({"n": 1}, resources_id="rs")
    assert (first.version, (await store.add_resources({"n": 2}, resources_id="rs"))) == (1, first)


async def test_the_latest_for_a_claim_is_the_runs_own_else_the_newest(
    access: Access, store: MongoStore
) -> None:
    assert await resources.latest_id(access, "mine") is None
    await store.add_resources({}, run_id="mine", resources_id="rs-1")
    await store.add_resources({}, run_id="theirs", resources_id="rs-2")
    assert [await resources.latest_id(access, run_id) for run_id in ("mine", "theirs", "none", None)] == [
        "rs-1",
        "rs-2",
        "rs-2",
        "rs-2",
    ]


async def test_what_is_missing_is_named(access: Access, store: MongoStore) -> None:
    await store.add_resources({}, resources_id="rs-1")
    await resources.require(access, {"rs-1"})
    with pytest.raises(NotFoundError, match="rs-2"):
        await resources.require(access, {"rs-1", "rs-2"})
