from __future__ import annotations

import random
from typing import Any

import pytest

from agl.store.mongo import MongoStore
from agl.store.paging import iter_attempts
from agl.types import Attempt, AttemptQuery, RolloutConfig, RolloutRequest

WORKERS = ("w0", "w1")


async def tried(store: MongoStore, clock: Any, chance: random.Random) -> list[Attempt]:
    """Let rollouts be tried again and again, and return the attempts in the order of their start."""
    await store.enqueue_many_rollouts(
        [RolloutRequest(task=number, config=RolloutConfig(max_attempts=4)) for number in range(12)]
    )
    claimed: list[tuple[str, str]] = []
    started: list[tuple[str, str]] = []
    for _ in range(40):
        held = await store.dequeue_rollout(worker_id=chance.choice(WORKERS))
        if held is not None:
            claimed.append((held.rollout.rollout_id, held.attempt.attempt_id))
            started.append(claimed[-1])
        if claimed and (held is None or chance.random() < 0.6):
            key = claimed.pop(chance.randrange(len(claimed)))
            await store.update_attempt(*key, status=chance.choice(["failed", "succeeded", "timeout"]))
        clock.now += chance.choice([0.0, 1.0])
    by_id: dict[str, Attempt] = {}
    for rollout_id in {rollout_id for rollout_id, _ in started}:
        page = await store.query_attempts(AttemptQuery(rollout_id=rollout_id))
        by_id |= {one.attempt_id: one for one in page.items}
    return [by_id[attempt_id] for _, attempt_id in started]


@pytest.mark.parametrize("seed", range(4))
async def test_pages_of_every_filter_and_size_are_the_list_in_the_order_of_start(
    store: MongoStore, clock: Any, seed: int
) -> None:
    everything = await tried(store, clock, random.Random(seed))
    assert len(everything) > 15
    for worker_id in (None, "w0"):
        for status in (None, ("failed",), ("succeeded", "timeout"), ("preparing",)):
            expected = [
                one
                for one in everything
                if worker_id in (None, one.worker_id) and (status is None or one.status in status)
            ]
            for order, right in (("asc", expected), ("desc", expected[::-1])):
                for limit in (1, 3, 100):
                    query = AttemptQuery(worker_id=worker_id, status=status, order=order, limit=limit)  # pyright: ignore[reportArgumentType]
                    assert [one async for one in iter_attempts(store, query)] == right


async def test_an_undone_claim_leaves_no_attempt_in_the_list(store: MongoStore) -> None:
    await store.enqueue_rollout(RolloutRequest(task="t"))
    await store.dequeue_rollout(worker_id="w", request_id="q")
    await store.undo_dequeue(worker_id="w", request_id="q")
    assert (await store.query_attempts(AttemptQuery())).items == []
