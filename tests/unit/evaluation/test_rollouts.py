"""Running rollouts: all are waited for, none twice."""

from __future__ import annotations

import pytest
from scripted_worker import Script, scripted_worker

from agl.evaluation.rollouts import abandon_rollouts, run_rollouts, spans_of_rollout
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


async def test_what_an_ended_process_left_open_is_run_again_when_its_turn_comes() -> None:
    async with InMemoryLightningStore() as store:
        for run_id in ("run", "other"):
            await store.add_run(name=run_id, run_id=run_id)
        await store.enqueue_many_rollouts(requests(2, run_id="run"))
        await store.enqueue_rollout(RolloutRequest(task=9, rollout_id="not ours", run_id="other"))
        await store.dequeue_rollout(worker_id="gone", run_id="run")

        assert await abandon_rollouts(store, run_id="run") == 2
        assert await store.dequeue_rollout(worker_id="early", run_id="run") is None
        for _ in range(2):  # it may be abandoned more than once
            await store.enqueue_many_rollouts([RolloutRequest(task=0, rollout_id="r0-again", run_id="run")])
            await abandon_rollouts(store, run_id="run")
        async with scripted_worker(store, lambda claim: Script(reward=float(claim.rollout.task))):
            done = await run_rollouts(store, requests(2, run_id="run"))
        assert (await store.get_rollout_by_id("not ours")).status == "succeeded"
    assert [rollout.status for rollout in done] == ["succeeded", "succeeded"]
    assert [rollout.rollout_id for rollout in done] == ["r0-again-again", "r1-again"]
    assert [rollout.reward for rollout in done] == [0.0, 1.0]


async def test_a_rollout_that_a_person_cancelled_stays_cancelled() -> None:
    async with InMemoryLightningStore() as store:
        await store.enqueue_many_rollouts(requests(1))
        await store.cancel_rollout("r0")
        (rollout,) = await run_rollouts(store, requests(1))
    assert rollout.status == "cancelled"


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
