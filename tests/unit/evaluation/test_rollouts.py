"""Running rollouts: all are waited for, none twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from scripted_worker import Script, scripted_worker

from agl.evaluation.rollouts import abandon_rollouts, is_straggler, run_rollouts, set_aside, spans_of_rollout
from agl.evaluation.waiting import WaitedFor
from agl.store.sqlite import InMemoryLightningStore
from agl.types import AttemptedRollout, ErrorInfo, Rollout, RolloutRequest


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
        await store.enqueue_rollout(RolloutRequest(task=9, rollout_id="not-ours", run_id="other"))
        await store.dequeue_rollout(worker_id="gone", run_id="run")

        assert await abandon_rollouts(store, run_id="run") == 2
        assert await store.dequeue_rollout(worker_id="early", run_id="run") is None
        for _ in range(2):  # it may be abandoned more than once
            await store.enqueue_many_rollouts([RolloutRequest(task=0, rollout_id="r0-again", run_id="run")])
            await abandon_rollouts(store, run_id="run")
        async with scripted_worker(store, lambda claim: Script(reward=float(claim.rollout.task))):
            done = await run_rollouts(store, requests(2, run_id="run"))
        assert (await store.get_rollout_by_id("not-ours")).status == "succeeded"
    assert [rollout.status for rollout in done] == ["succeeded", "succeeded"]
    assert [rollout.rollout_id for rollout in done] == ["r0-again-again", "r1-again"]
    assert [rollout.reward for rollout in done] == [0.0, 1.0]


async def test_a_time_limit_that_ends_a_rollout_while_it_is_abandoned_is_no_error() -> None:
    class EndsItself(InMemoryLightningStore):
        async def update_rollout(self, rollout_id: str, **changes: Any) -> Rollout:
            changed = await super().update_rollout(rollout_id, **changes)
            attempt = await self.get_latest_attempt(rollout_id)
            assert attempt is not None
            await self.update_attempt(
                rollout_id, attempt.attempt_id, status="timeout", error=ErrorInfo(cause="timeout")
            )
            return changed

    async with EndsItself() as store:
        await store.add_run(name="run", run_id="run")
        await store.enqueue_many_rollouts(requests(1, run_id="run"))
        await store.dequeue_rollout(worker_id="gone", run_id="run")
        assert await abandon_rollouts(store, run_id="run") == 1
        assert (await store.get_rollout_by_id("r0")).status == "failed"
        async with scripted_worker(store, lambda _: Script(reward=1.0)):
            (rollout,) = await run_rollouts(store, requests(1, run_id="run"))
    assert (rollout.rollout_id, rollout.status) == ("r0-again", "succeeded")


async def test_what_was_set_aside_is_run_again_and_the_rest_is_not() -> None:
    async with InMemoryLightningStore() as store:
        async with scripted_worker(store, lambda _: Script(error="ConnectionError")):
            failed = await run_rollouts(store, requests(2))
            await set_aside(store, failed[:1])
        async with scripted_worker(store, lambda _: Script(reward=1.0)):
            done = await run_rollouts(store, requests(2))
    assert [rollout.status for rollout in done] == ["succeeded", "failed"]


@pytest.mark.parametrize(
    "changed",
    [
        {"task": "another"},
        {"metadata": {"seed": 2}},
        {"metadata": {"seed": 1, "sampling": {"max_tokens": 9}}},
    ],
)
async def test_a_rollout_of_another_task_seed_or_sampling_is_not_taken_for_an_answer(
    changed: dict[str, Any],
) -> None:
    first = RolloutRequest(task={"question": [1, 2]}, rollout_id="r", metadata={"seed": 1, "sampling": {}})
    async with InMemoryLightningStore() as store, scripted_worker(store, lambda _: Script(reward=1.0)):
        await run_rollouts(store, [first])
        (same,) = await run_rollouts(store, [first.model_copy(update={"task": {"question": (1, 2)}})])
        (other,) = await run_rollouts(store, [first.model_copy(update=changed)])
    assert same.rollout_id == "r"
    assert other.rollout_id == "r-again"
    assert other.task == first.model_copy(update=changed).task


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


def hangs(*numbers: int) -> Callable[[AttemptedRollout], Script]:
    return lambda claim: Script(reward=1.0, hangs=claim.rollout.task in numbers)


async def test_when_enough_have_ended_the_others_are_cancelled_as_stragglers() -> None:
    async with InMemoryLightningStore() as store, scripted_worker(store, hangs(3, 7)):
        done = await run_rollouts(store, requests(10), wait_fraction=0.8)
        again = await run_rollouts(store, requests(10), wait_fraction=0.8)
        statistics = await store.statistics()
    assert [number for number, one in enumerate(done) if is_straggler(one)] == [3, 7]
    assert [one.status for one in done if not is_straggler(one)] == ["succeeded"] * 8
    assert again == done  # the store remembers who was cut off
    assert statistics["attempts"]["cancelled"] == 2


async def test_a_fraction_of_all_is_all() -> None:
    async with InMemoryLightningStore() as store, scripted_worker(store, hangs()):
        done = await run_rollouts(store, requests(10), wait_fraction=1.0)
    assert not any(map(is_straggler, done))


async def test_a_straggler_that_ends_before_its_cancel_counts_as_it_ended() -> None:
    class LateFinish(InMemoryLightningStore):
        async def cancel_rollout(self, rollout_id: str) -> Rollout:
            attempt = await self.get_latest_attempt(rollout_id)
            assert attempt is not None
            await self.update_attempt(rollout_id, attempt.attempt_id, status="succeeded", reward=0.5)
            return await super().cancel_rollout(rollout_id)

    async with LateFinish() as store, scripted_worker(store, hangs(1)):
        done = await run_rollouts(store, requests(2), wait_fraction=0.5)
        again = await run_rollouts(store, requests(2), wait_fraction=0.5)
    assert [one.reward for one in done] == [1.0, 0.5]
    assert again == done


async def test_a_process_killed_while_it_cut_comes_to_the_same_rollouts_when_resumed() -> None:
    class KilledError(Exception):
        pass

    class DiesAtSecondCancel(InMemoryLightningStore):
        cancels = 0

        async def cancel_rollout(self, rollout_id: str) -> Rollout:
            self.cancels += 1
            if self.cancels == 2:
                raise KilledError
            return await super().cancel_rollout(rollout_id)

    asked = requests(6, run_id="run")
    async with DiesAtSecondCancel() as store:
        async with scripted_worker(store, hangs(1, 2, 4)):
            with pytest.raises(KilledError):
                await run_rollouts(store, asked, wait_fraction=0.5)
        await abandon_rollouts(store, run_id="run")
        # Nothing is waited for any more, so without any worker: what has not ended is not needed.
        done = await run_rollouts(store, asked, wait_fraction=0.5)
        assert await run_rollouts(store, asked, wait_fraction=0.5) == done
    assert [one.rollout_id for one in done if one.status == "succeeded"] == ["r0", "r3", "r5"]
    assert all(is_straggler(one) for one in done if one.status != "succeeded")


async def test_who_waits_hears_whom_it_waits_for() -> None:
    heard: list[WaitedFor] = []
    told = asyncio.Event()

    def hear(waited: WaitedFor) -> None:
        heard.append(waited)
        if "no runner" in (waited.words or ""):
            told.set()

    async with InMemoryLightningStore() as store:
        wait = asyncio.create_task(run_rollouts(store, requests(3), on_wait=hear))
        await told.wait()
        async with scripted_worker(store, hangs()):
            await wait
    assert heard[0] == WaitedFor(done=0, total=3, words="3 rollouts")
    assert WaitedFor(done=0, total=3, words="3 rollouts: no runner is connected") in heard
    assert heard[-1] == WaitedFor(done=3, total=3)
