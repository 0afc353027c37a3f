from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fake_mongo import FakeMongo

from agl.errors import ConflictError
from agl.store.mongo import MongoStore
from agl.types import AttemptQuery, RolloutRequest


async def test_one_id_enqueued_by_two_processes_is_one_rollout(
    store: MongoStore, another: Callable[[], MongoStore]
) -> None:
    async with another() as other:
        answers = await asyncio.gather(
            store.enqueue_rollout(RolloutRequest(task="a", rollout_id="ro")),
            other.enqueue_rollout(RolloutRequest(task="b", rollout_id="ro")),
        )
    assert answers[0] == answers[1] == await store.get_rollout_by_id("ro")


async def test_enqueues_whose_answers_were_lost_are_not_doubled(
    store: MongoStore, database: FakeMongo
) -> None:
    for answered in range(5):  # of the number, the batch, the rollouts, the deletion, and none
        database.lose_answers(1, after=answered)
        await store.enqueue_many_rollouts([RolloutRequest(task=number) for number in range(3)])
    assert (await store.statistics())["rollouts"]["pending"] == 15
    assert not database["batches"].documents


async def test_a_start_whose_answer_was_lost_is_answered(store: MongoStore, database: FakeMongo) -> None:
    held = []
    for lost in range(2):
        database.lose_answers(1, after=lost)
        held.append(await store.start_rollout(RolloutRequest(task="t", rollout_id=f"ro-{lost}")))
    await store.enqueue_rollout(RolloutRequest(task="t", rollout_id="ro-3"))
    database.lose_answers(1)
    held.append(await store.start_attempt("ro-3"))
    stored = (await store.query_attempts(AttemptQuery())).items
    assert [one.attempt_id for one in stored] == [one.attempt.attempt_id for one in held]
    with pytest.raises(ConflictError, match="exists"):
        await store.start_rollout(RolloutRequest(task="t", rollout_id="ro-0"))


async def test_reports_whose_answers_were_lost_are_answered(store: MongoStore, database: FakeMongo) -> None:
    held = await store.start_rollout(RolloutRequest(task="t"))
    key = (held.rollout.rollout_id, held.attempt.attempt_id)
    database.lose_answers(1)
    assert (await store.update_attempt(*key, status="running")).attempt.status == "running"
    database.lose_answers(1)
    done = await store.update_attempt(*key, status="succeeded", reward=0.5)
    assert (done.attempt.status, done.rollout.reward) == ("succeeded", 0.5)
    other = await store.enqueue_rollout(RolloutRequest(task="t"))
    database.lose_answers(1)
    assert (await store.cancel_rollout(other.rollout_id)).status == "cancelled"
