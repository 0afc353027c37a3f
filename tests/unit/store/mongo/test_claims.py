from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fake_mongo import FakeMongo

from agl.store.mongo import MongoStore, claims
from agl.store.mongo.access import Access
from agl.types import AttemptQuery, RolloutConfig, RolloutRequest


def asked(count: int, **fields: Any) -> list[RolloutRequest]:
    return [RolloutRequest(task=number, **fields) for number in range(count)]


async def test_a_claim_whose_answer_was_lost_is_found_not_repeated(
    store: MongoStore, database: FakeMongo
) -> None:
    await store.enqueue_many_rollouts(asked(3))
    await store.dequeue_rollout(worker_id="w")
    database.lose_answers(1)
    held = await store.dequeue_rollout(worker_id="w")
    assert held is not None
    assert held.rollout.task == 1
    assert len((await store.query_attempts(AttemptQuery())).items) == 2
    left = await store.dequeue_rollout(worker_id="w")
    assert left is not None
    assert left.rollout.task == 2


async def test_one_request_answered_by_two_processes_claims_once(
    store: MongoStore, another: Callable[[], MongoStore]
) -> None:
    await store.enqueue_many_rollouts(asked(9))
    async with another() as other:
        first, second = await asyncio.gather(
            *(one.dequeue_many_rollouts(worker_id="w", limit=3, request_id="q") for one in (store, other))
        )
        again = await other.dequeue_many_rollouts(worker_id="w", limit=3, request_id="q")
    assert len((await store.query_attempts(AttemptQuery())).items) == 3
    ids = [held.attempt.attempt_id for held in again]
    assert len(ids) == 3
    assert {held.attempt.attempt_id for held in (*first, *second)} == set(ids)


async def test_a_claim_is_given_back_to_its_place(store: MongoStore, access: Access) -> None:
    await store.add_resources({"n": 1}, resources_id="rs")
    await store.enqueue_many_rollouts(asked(3))
    first = await store.dequeue_rollout(worker_id="w")
    assert first is not None
    assert first.rollout.resources_id == "rs"
    assert await claims.give_back(access, first.attempt.attempt_id)
    back = await store.get_rollout_by_id(first.rollout.rollout_id)
    assert (back.status, back.resources_id, back.num_attempts, back.started_at) == ("pending", None, 0, None)
    assert not await claims.give_back(access, first.attempt.attempt_id)
    again = await store.dequeue_rollout(worker_id="w")
    assert again is not None
    assert again.rollout.task == 0


async def test_an_attempt_that_shows_life_is_not_given_back(store: MongoStore, access: Access) -> None:
    await store.enqueue_many_rollouts(asked(3, config=RolloutConfig(max_attempts=2)))
    running, counted, ended = await store.dequeue_many_rollouts(worker_id="w", limit=3)
    await store.update_attempt(running.rollout.rollout_id, running.attempt.attempt_id)
    await store.get_next_span_sequence_id(counted.rollout.rollout_id, counted.attempt.attempt_id)
    await store.update_attempt(ended.rollout.rollout_id, ended.attempt.attempt_id, status="failed")
    for held in (running, counted, ended):
        assert not await claims.give_back(access, held.attempt.attempt_id)


async def test_asking_for_work_is_noted_once_a_second(
    store: MongoStore, database: FakeMongo, clock: Any
) -> None:
    await store.register_worker("w")
    workers = database["workers"].documents
    clock.now += 0.5
    await store.dequeue_rollout(worker_id="w")
    assert workers["w"]["last_heartbeat_at"] == 1000.5
    clock.now += 0.5
    await store.dequeue_rollout(worker_id="w")
    assert workers["w"]["last_heartbeat_at"] == 1000.5
    clock.now += 0.5
    await store.dequeue_rollout(worker_id="w")
    assert workers["w"]["last_heartbeat_at"] == 1001.5
