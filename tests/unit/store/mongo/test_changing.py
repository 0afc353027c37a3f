from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fake_mongo import FakeMongo

from agl.errors import ConflictError, NotFoundError
from agl.store.mongo import MongoStore, changing
from agl.store.mongo.access import Access
from agl.store.mongo.changing import Decision
from agl.store.mongo.documents import rollout_of
from agl.types import RolloutConfig, RolloutRequest


async def test_a_late_report_is_refused_though_no_watchdog_looked(
    store: MongoStore, database: FakeMongo, clock: Any
) -> None:
    config = RolloutConfig(unresponsive_seconds=10, max_attempts=2)
    held = await store.start_rollout(RolloutRequest(task="t", config=config), worker_id="w")
    store._access.deadlines._next = 1e300  # this process does not know the deadline: another one set it
    clock.now += 10.0
    with pytest.raises(ConflictError, match="unresponsive"):
        await store.update_attempt(held.rollout.rollout_id, held.attempt.attempt_id, status="succeeded")
    assert (await store.get_rollout_by_id(held.rollout.rollout_id)).status == "requeuing"


async def test_a_decision_on_an_old_document_is_made_anew(access: Access, store: MongoStore) -> None:
    await store.enqueue_rollout(RolloutRequest(task="t", rollout_id="ro"))
    seen: list[int] = []

    def decide(document: dict[str, Any], now: float) -> Decision:
        if not seen:  # somebody else is faster, once
            access["rollouts"].documents["ro"]["rev"] += 1  # pyright: ignore[reportAttributeAccessIssue]
        seen.append(document["rev"])
        return Decision(rollout=rollout_of(document).model_copy(update={"priority": 7}), attempt=None)

    saved = await changing.change(access, "ro", decide)
    assert (saved["priority"], seen) == (7, [0, 1])


async def test_all_of_many_changes_at_once_get_through(store: MongoStore) -> None:
    await store.enqueue_rollout(RolloutRequest(task="t", rollout_id="ro"))
    await asyncio.gather(*(store.update_rollout("ro", metadata={"n": number}) for number in range(20)))
    rollout = await store.get_rollout_by_id("ro")
    assert rollout.metadata["n"] in range(20)


async def test_an_attempt_heard_of_meanwhile_is_not_ended(
    store: MongoStore, access: Access, clock: Any
) -> None:
    config = RolloutConfig(unresponsive_seconds=10)
    held = await store.start_rollout(RolloutRequest(task="t", rollout_id="ro", config=config))
    await store.get_next_span_sequence_id("ro", held.attempt.attempt_id)
    stale = await changing.read(access, "ro")
    clock.now += 9.0
    await store.get_next_span_sequence_id("ro", held.attempt.attempt_id)
    clock.now += 1.0
    await changing.expire(access, stale, clock.now)
    assert (await store.get_rollout_by_id("ro")).status == "running"


async def test_an_unknown_rollout_is_not_found(access: Access) -> None:
    with pytest.raises(NotFoundError, match="none"):
        await changing.read(access, "none")
