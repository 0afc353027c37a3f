from __future__ import annotations

from typing import Any

import pytest

from agl.errors import NotFoundError
from agl.store.mongo import MongoStore, signs
from agl.store.mongo.access import Access
from agl.types import RolloutConfig, RolloutRequest

CONFIG = RolloutConfig(unresponsive_seconds=10, max_attempts=3)


async def started(store: MongoStore, rollout_id: str) -> str:
    held = await store.start_rollout(
        RolloutRequest(task="t", rollout_id=rollout_id, config=CONFIG), worker_id="w"
    )
    return held.attempt.attempt_id


async def test_owners_are_found_and_strangers_named(store: MongoStore, access: Access) -> None:
    attempt_id = await started(store, "ro-1")
    await started(store, "ro-2")
    owners = await signs.find_owners(
        access, [("ro-1", attempt_id), (None, attempt_id), ("ro-1", None), (None, None)]
    )
    assert [(one.rollout_id, one.number, one.is_open) for one in owners.values()] == [
        ("ro-1", 1, True),
        ("ro-1", 1, True),
        ("ro-1", 0, False),
        (None, 0, False),
    ]
    for key in (("ro-2", attempt_id), ("ro-1", "none"), ("none", None), ("none", attempt_id)):
        with pytest.raises(NotFoundError):
            await signs.find_owners(access, [key])


async def test_a_counter_moves_only_from_where_it_was_seen(store: MongoStore, access: Access) -> None:
    attempt_id = await started(store, "ro")
    key = ("ro", attempt_id)
    owner = (await signs.find_owners(access, [key]))[key]
    assert await signs.count(access, owner, add=2) == 2
    assert await signs.count(access, owner, to=5) is None  # it was read as 0, and preparing
    owner = (await signs.find_owners(access, [key]))[key]
    assert await signs.count(access, owner, to=5) == 5
    assert await signs.count(access, owner, to=9) is None  # it was read as 2
    assert await signs.count(access, owner, add=1) == 6


async def test_an_expired_attempt_is_ended_by_its_late_sign_of_life(
    store: MongoStore, access: Access, clock: Any
) -> None:
    attempt_id = await started(store, "ro")
    key = ("ro", attempt_id)
    owner = (await signs.find_owners(access, [key]))[key]
    clock.now += 10.0
    assert await signs.count(access, owner, add=1) is None
    assert (await store.get_rollout_by_id("ro")).status == "requeuing"
    owner = (await signs.find_owners(access, [key]))[key]
    assert not owner.is_open
    assert await signs.count(access, owner, add=1) == 1  # history is numbered, too


async def test_a_heartbeat_renews_only_what_is_the_workers(
    store: MongoStore, access: Access, clock: Any
) -> None:
    own, late = await started(store, "ro-1"), await started(store, "ro-2")
    await store.start_rollout(RolloutRequest(task="t", rollout_id="ro-3"), worker_id="other")
    theirs = await store.get_latest_attempt("ro-3")
    free = (await store.start_rollout(RolloutRequest(task="t", rollout_id="ro-4"))).attempt.attempt_id
    assert theirs is not None
    clock.now += 5.0
    assert await signs.renew(access, "w", [own]) == []
    clock.now += 5.0
    asked = [late, own, theirs.attempt_id, free, "none"]
    assert await signs.renew(access, "w", asked) == [late, theirs.attempt_id, "none"]
    assert (await store.get_rollout_by_id("ro-2")).status == "requeuing"
