"""Running rollouts: all are waited for, none twice."""

from __future__ import annotations

import pytest
from scripted_worker import Script, scripted_worker

from agl.evaluation.rollouts import run_rollouts, spans_of_rollout
from agl.store.sqlite import InMemoryLightningStore
from agl.types import RolloutRequest


def requests(number: int, **fields: object) -> list[RolloutRequest]:
    return [RolloutRequest(task=index, rollout_id=f"r{index}", **fields) for index in range(number)]  # type: ignore[arg-type]


async def test_rollouts_come_back_in_the_order_of_the_requests() -> None:
    async with (
        InMemoryLightningStore() as store,
        scripted_worker(store, lambda c: Script(reward=c.rollout.task)),
    ):
        done = await run_rollouts(store, requests(20))
    assert [rollout.reward for rollout in done] == list(range(20))


async def test_a_second_run_is_answered_from_the_store() -> None:
    async with (
        InMemoryLightningStore() as store,
        scripted_worker(store, lambda _: Script(reward=1.0)) as claimed,
    ):
        await run_rollouts(store, requests(3))
        again = await run_rollouts(store, requests(5))
    assert [rollout.status for rollout in again] == ["succeeded"] * 5
    assert len(claimed) == 5


async def test_what_waits_since_before_gets_the_resources_asked_for_now() -> None:
    async with InMemoryLightningStore() as store:
        for version in ("old", "new"):
            await store.add_resources({"x": version}, resources_id=version)
        await store.enqueue_many_rollouts(requests(2, resources_id="old"))
        async with scripted_worker(store, lambda _: Script(reward=1.0)):
            done = await run_rollouts(store, requests(2, resources_id="new"))
    assert [rollout.resources_id for rollout in done] == ["new", "new"]


async def test_progress_ends_at_the_total() -> None:
    seen: list[tuple[int, int]] = []
    async with InMemoryLightningStore() as store, scripted_worker(store, lambda _: Script(reward=1.0)):
        await run_rollouts(store, requests(3), on_progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 3)
    assert seen[-1] == (3, 3)


async def test_spans_of_all_pages_come_back() -> None:
    calls = [([1], [2])] * 7
    async with (
        InMemoryLightningStore() as store,
        scripted_worker(store, lambda _: Script(reward=1.0, calls=calls)),
    ):
        (rollout,) = await run_rollouts(store, requests(1))
        spans = await spans_of_rollout(store, rollout.rollout_id)
    assert [span.sequence_id for span in spans] == pytest.approx([1, 2, 3, 4, 5, 6, 7])
