"""What every LightningStore promises about rollouts and attempts (design, sections 2, 4 and 5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agl.errors import ConflictError, InvalidRequestError, NotFoundError, StoreUnavailableError
from agl.store.base import LightningStore
from agl.store.paging import iter_rollouts
from agl.types import (
    AttemptedRollout,
    AttemptQuery,
    ErrorInfo,
    Rollout,
    RolloutConfig,
    RolloutQuery,
    RolloutRequest,
    SpanQuery,
)

BOOM = ErrorInfo(cause="ValueError", message="boom", traceback="Traceback ...")
RETRY = RolloutConfig(max_attempts=2)


def asked(task: Any = "t", **fields: Any) -> RolloutRequest:
    return RolloutRequest(task=task, **fields)


async def claim(store: LightningStore, worker_id: str = "w", **options: Any) -> AttemptedRollout:
    held = await store.dequeue_rollout(worker_id=worker_id, **options)
    assert held is not None
    return held


async def finish(store: LightningStore, held: AttemptedRollout, **report: Any) -> Rollout:
    done = await store.update_attempt(held.rollout.rollout_id, held.attempt.attempt_id, **report)
    return done.rollout


# Enqueue.


async def test_an_enqueued_rollout_is_pending_with_everything_that_was_asked(
    store: LightningStore, clock: Any
) -> None:
    config = RolloutConfig(timeout_seconds=5, unresponsive_seconds=2, max_attempts=3, retry_on=("timeout",))
    rollout = await store.enqueue_rollout(
        asked(
            {"q": [1, None, "ä"]},
            rollout_id="ro",
            run_id="run",
            mode="val",
            group_id="g",
            config=config,
            metadata={"k": 1},
            priority=3,
        )
    )
    assert rollout == Rollout(
        rollout_id="ro",
        run_id="run",
        task={"q": [1, None, "ä"]},
        mode="val",
        group_id="g",
        config=config,
        metadata={"k": 1},
        priority=3,
        created_at=clock.now,
    )
    assert await store.get_rollout_by_id("ro") == rollout


async def test_enqueue_is_idempotent_by_rollout_id(store: LightningStore) -> None:
    first = await store.enqueue_rollout(asked("one", rollout_id="ro"))
    again = await store.enqueue_rollout(asked("another", rollout_id="ro", priority=9))
    assert again == first
    await finish(store, await claim(store), status="succeeded", reward=1.0)
    finished = await store.enqueue_rollout(asked("one", rollout_id="ro"))
    assert (finished.status, finished.reward) == ("succeeded", 1.0)
    assert await store.dequeue_rollout(worker_id="w") is None


async def test_equal_ids_within_one_call_are_one_rollout(store: LightningStore) -> None:
    rollouts = await store.enqueue_many_rollouts(
        [asked("a", rollout_id="ro"), asked("b", rollout_id="ro"), asked("c")]
    )
    assert [rollout.task for rollout in rollouts] == ["a", "a", "c"]
    assert (await store.statistics())["rollouts"]["pending"] == 2


async def test_equal_tasks_are_different_rollouts(store: LightningStore) -> None:
    one, two = await store.enqueue_many_rollouts([asked("same"), asked("same")])
    assert one.rollout_id != two.rollout_id


async def test_enqueue_many_takes_all_or_none(store: LightningStore) -> None:
    with pytest.raises(NotFoundError, match="rs-missing"):
        await store.enqueue_many_rollouts([asked(), asked(resources_id="rs-missing")])
    with pytest.raises(InvalidRequestError, match="not JSON"):
        await store.enqueue_many_rollouts([asked(), asked(task={1, 2})])
    assert (await store.query_rollouts()).items == []


async def test_what_comes_back_is_a_copy(store: LightningStore) -> None:
    task = {"q": ["a"]}
    rollout = await store.enqueue_rollout(asked(task, rollout_id="ro", metadata={"m": []}))
    task["q"].append("by the caller")
    rollout.task["q"].append("by the reader")
    rollout.metadata["m"].append(1)
    (await store.get_rollout_by_id("ro")).task["q"].append("by another reader")
    stored = await store.get_rollout_by_id("ro")
    assert stored.task == {"q": ["a"]}
    assert stored.metadata == {"m": []}


# Dequeue.


async def test_rollouts_are_claimed_first_in_first_out(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked(n) for n in range(3)])
    assert [(await claim(store)).rollout.task for _ in range(3)] == [0, 1, 2]


async def test_a_higher_priority_is_claimed_first(store: LightningStore) -> None:
    await store.enqueue_many_rollouts(
        [asked("a"), asked("b", priority=1), asked("c", priority=-1), asked("d", priority=1)]
    )
    assert [(await claim(store)).rollout.task for _ in range(4)] == ["b", "d", "a", "c"]


async def test_a_changed_priority_counts(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked("a"), asked("b", rollout_id="b")])
    assert (await store.update_rollout("b", priority=1)).priority == 1
    assert (await claim(store)).rollout.task == "b"


async def test_a_claim_makes_an_attempt_with_its_lease(store: LightningStore, clock: Any) -> None:
    await store.enqueue_rollout(asked(config=RolloutConfig(unresponsive_seconds=30)))
    clock.advance(5)
    held = await claim(store, "worker-1")
    assert (held.rollout.status, held.rollout.num_attempts, held.rollout.started_at) == (
        "preparing",
        1,
        clock.now,
    )
    attempt = held.attempt
    assert (attempt.rollout_id, attempt.sequence_id, attempt.worker_id) == (
        held.rollout.rollout_id,
        1,
        "worker-1",
    )
    assert (attempt.status, attempt.started_at, attempt.last_heartbeat_at) == (
        "preparing",
        clock.now,
        clock.now,
    )
    assert attempt.lease == clock.now + 30
    assert await store.get_latest_attempt(held.rollout.rollout_id) == attempt
    assert await store.get_rollout_by_id(held.rollout.rollout_id) == held.rollout


async def test_an_empty_queue_answers_none_at_once(store: LightningStore) -> None:
    assert await store.dequeue_rollout(worker_id="w") is None
    assert await store.dequeue_many_rollouts(worker_id="w", limit=5) == []


async def test_dequeue_many_hands_out_up_to_the_limit(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked(n) for n in range(5)])
    assert [one.rollout.task for one in await store.dequeue_many_rollouts(worker_id="w", limit=3)] == [
        0,
        1,
        2,
    ]
    assert [one.rollout.task for one in await store.dequeue_many_rollouts(worker_id="w", limit=3)] == [3, 4]


@pytest.mark.parametrize(
    "options", [{"worker_id": ""}, {"worker_id": "w", "limit": 0}, {"worker_id": "w", "wait_seconds": -1}]
)
async def test_a_senseless_dequeue_is_refused(store: LightningStore, options: Any) -> None:
    with pytest.raises(InvalidRequestError):
        await store.dequeue_many_rollouts(**options)


async def test_dequeue_takes_only_rollouts_of_the_run_asked_for(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked("a", run_id="r1"), asked("b", run_id="r2"), asked("c")])
    assert (await claim(store, run_id="r2")).rollout.task == "b"
    assert await store.dequeue_rollout(worker_id="w", run_id="r2") is None
    assert (await claim(store)).rollout.task == "a"


async def test_no_rollout_is_handed_out_twice(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked(n) for n in range(200)])

    async def worker(name: str) -> list[Any]:
        tasks: list[Any] = []
        while claimed := await store.dequeue_many_rollouts(worker_id=name, limit=3):
            tasks += [held.rollout.task for held in claimed]
        return tasks

    claimed = await asyncio.gather(*(worker(f"w{n}") for n in range(20)))
    assert sorted(task for tasks in claimed for task in tasks) == list(range(200))


async def test_dequeue_is_idempotent_by_request_id(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked(n) for n in range(4)])
    first = await store.dequeue_many_rollouts(worker_id="w", limit=2, request_id="q1")
    assert await store.dequeue_many_rollouts(worker_id="w", limit=2, request_id="q1") == first
    await finish(store, first[0], status="running")
    again = await store.dequeue_many_rollouts(worker_id="w", limit=2, request_id="q1")
    assert [held.attempt.attempt_id for held in again] == [held.attempt.attempt_id for held in first]
    assert [held.attempt.status for held in again] == ["running", "preparing"]
    other = await store.dequeue_many_rollouts(worker_id="w", limit=2, request_id="q2")
    assert [held.rollout.task for held in other] == [2, 3]


async def test_two_workers_with_one_request_id_get_different_rollouts(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked(1), asked(2)])
    tasks = [(await claim(store, worker, request_id="q")).rollout.task for worker in ("w1", "w2")]
    assert tasks == [1, 2]


async def test_an_empty_claim_is_not_remembered(store: LightningStore) -> None:
    assert await store.dequeue_rollout(worker_id="w", request_id="q") is None
    await store.enqueue_rollout(asked("late"))
    assert (await claim(store, request_id="q")).rollout.task == "late"


# Waiting for work.


async def test_a_waiting_dequeue_returns_when_a_rollout_arrives(store: LightningStore) -> None:
    waiting = asyncio.create_task(claim(store, wait_seconds=60))
    assert await store.dequeue_rollout(worker_id="other") is None  # the waiting one has looked in vain by now
    await store.enqueue_rollout(asked("now"))
    assert (await asyncio.wait_for(waiting, 10)).rollout.task == "now"


async def test_a_waiting_dequeue_returns_none_when_time_is_up(store: LightningStore) -> None:
    assert await asyncio.wait_for(store.dequeue_rollout(worker_id="w", wait_seconds=0.02), 10) is None


async def test_waiting_workers_share_what_arrives(store: LightningStore) -> None:
    waiting = [asyncio.create_task(claim(store, f"w{n}", wait_seconds=60)) for n in range(10)]
    await store.statistics()
    await store.enqueue_many_rollouts([asked(n) for n in range(4)])
    for n in range(4, 10):
        await store.enqueue_rollout(asked(n))
    claimed = await asyncio.wait_for(asyncio.gather(*waiting), 10)
    assert sorted(held.rollout.task for held in claimed) == list(range(10))


async def test_a_wait_for_a_run_is_ended_only_by_that_run(store: LightningStore) -> None:
    waiting = asyncio.create_task(claim(store, wait_seconds=60, run_id="mine"))
    await store.enqueue_rollout(asked("theirs", run_id="theirs"))
    await store.statistics()
    assert not waiting.done()
    await store.enqueue_rollout(asked("mine", run_id="mine"))
    assert (await asyncio.wait_for(waiting, 10)).rollout.task == "mine"


async def test_a_requeued_rollout_ends_a_wait(store: LightningStore) -> None:
    await store.enqueue_rollout(asked(config=RETRY))
    held = await claim(store)
    waiting = asyncio.create_task(claim(store, "w2", wait_seconds=60))
    await store.statistics()
    await finish(store, held, status="failed", error=BOOM)
    assert (await asyncio.wait_for(waiting, 10)).attempt.sequence_id == 2


async def test_a_cancelled_dequeue_strands_nothing(store: LightningStore) -> None:
    for pause in range(6):  # cancel at different moments: before, during and after the transaction
        await store.enqueue_rollout(asked(pause))
        dequeue = asyncio.create_task(store.dequeue_rollout(worker_id="w", wait_seconds=60))
        for _ in range(pause):
            await asyncio.sleep(0)
        dequeue.cancel()
        await asyncio.gather(dequeue, return_exceptions=True)
        held = await claim(store, "w2", wait_seconds=10)
        assert (held.rollout.task, held.attempt.sequence_id) == (pause, 1)
        assert len((await store.query_attempts(AttemptQuery(rollout_id=held.rollout.rollout_id))).items) == 1


async def test_a_cancelled_waiter_passes_its_wake_up_on(store: LightningStore) -> None:
    first = asyncio.create_task(store.dequeue_rollout(worker_id="w1", wait_seconds=60))
    second = asyncio.create_task(claim(store, "w2", wait_seconds=60))
    await store.statistics()
    await store.enqueue_rollout(asked("a"))
    first.cancel()
    done = await asyncio.gather(first, return_exceptions=True)
    if isinstance(
        done[0], AttemptedRollout
    ):  # it was served before the cancellation: serve the other one too
        await store.enqueue_rollout(asked("b"))
    assert (await asyncio.wait_for(second, 10)).attempt.sequence_id == 1


# Resources at the claim.


async def test_enqueue_refuses_unknown_resources(store: LightningStore) -> None:
    with pytest.raises(NotFoundError, match="rs-none"):
        await store.enqueue_rollout(asked(resources_id="rs-none"))
    with pytest.raises(NotFoundError, match="rs-none"):
        await store.start_rollout(asked(resources_id="rs-none"))
    await store.enqueue_rollout(asked(rollout_id="ro"))
    with pytest.raises(NotFoundError, match="rs-none"):
        await store.update_rollout("ro", resources_id="rs-none")


async def test_a_claim_pins_the_latest_resources_of_the_run(store: LightningStore) -> None:
    await store.add_resources({"n": 1}, run_id="mine", resources_id="rs-1")
    await store.enqueue_rollout(asked(run_id="mine", config=RETRY))
    await store.add_resources({"n": 2}, run_id="mine", resources_id="rs-2")
    await store.add_resources({"n": 3}, run_id="theirs", resources_id="rs-3")
    held = await claim(store)
    assert held.rollout.resources_id == "rs-2"
    await store.add_resources({"n": 4}, run_id="mine", resources_id="rs-4")
    await finish(store, held, status="failed", error=BOOM)
    assert (await claim(store)).rollout.resources_id == "rs-2"  # a retry runs under the same conditions


async def test_a_claim_without_resources_of_its_run_takes_the_latest(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked(1), asked(2, run_id="mine"), asked(3)])
    assert (await claim(store)).rollout.resources_id is None
    await store.add_resources({"n": 1}, resources_id="rs-1")
    assert (await claim(store)).rollout.resources_id == "rs-1"
    assert (await store.start_rollout(asked(4))).rollout.resources_id == "rs-1"


async def test_given_resources_are_kept(store: LightningStore) -> None:
    await store.add_resources({"n": 1}, resources_id="rs-1")
    await store.add_resources({"n": 2}, resources_id="rs-2")
    await store.enqueue_rollout(asked(resources_id="rs-1"))
    assert (await claim(store)).rollout.resources_id == "rs-1"


# Reports.


async def test_a_success_with_a_reward_finishes_the_rollout(store: LightningStore, clock: Any) -> None:
    await store.enqueue_rollout(asked())
    held = await claim(store)
    clock.advance(3)
    done = await store.update_attempt(
        held.rollout.rollout_id,
        held.attempt.attempt_id,
        status="succeeded",
        reward=0.5,
        reward_dimensions={"format": 1.0},
    )
    assert (done.attempt.status, done.attempt.finished_at, done.attempt.lease) == (
        "succeeded",
        clock.now,
        None,
    )
    rollout = done.rollout
    assert (rollout.status, rollout.reward, rollout.reward_dimensions) == ("succeeded", 0.5, {"format": 1.0})
    assert (rollout.finished_at, rollout.error) == (clock.now, None)
    assert await store.get_rollout_by_id(rollout.rollout_id) == rollout


async def test_no_reward_is_not_zero(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked(), asked()])
    assert (await finish(store, await claim(store), status="succeeded")).reward is None
    assert (await finish(store, await claim(store), status="succeeded", reward=0.0)).reward == 0.0


async def test_a_failure_without_retries_fails_the_rollout_with_its_error(store: LightningStore) -> None:
    await store.enqueue_rollout(asked())
    rollout = await finish(store, await claim(store), status="failed", error=BOOM)
    assert (rollout.status, rollout.error, rollout.reward) == ("failed", BOOM, None)
    attempt = await store.get_latest_attempt(rollout.rollout_id)
    assert attempt is not None
    assert attempt.error == BOOM


async def test_a_failure_without_an_error_names_failed_as_its_cause(store: LightningStore) -> None:
    await store.enqueue_rollout(asked())
    rollout = await finish(store, await claim(store), status="failed")
    assert rollout.error == ErrorInfo(cause="failed")


async def test_max_attempts_alone_retries_and_counts_all_attempts(store: LightningStore) -> None:
    await store.enqueue_rollout(asked(config=RETRY))
    rollout = await finish(store, await claim(store), status="failed", error=BOOM)
    assert (rollout.status, rollout.error, rollout.finished_at) == ("requeuing", None, None)
    held = await claim(store)
    assert (held.attempt.sequence_id, held.rollout.num_attempts, held.rollout.status) == (2, 2, "preparing")
    last = ErrorInfo(cause="KeyError", message="second")
    rollout = await finish(store, held, status="failed", error=last)
    assert (rollout.status, rollout.error) == (
        "failed",
        last,
    )  # the last attempt's cause, not "retries used up"
    assert await store.dequeue_rollout(worker_id="w") is None


async def test_a_success_after_a_retry_has_no_error(store: LightningStore) -> None:
    await store.enqueue_rollout(asked(config=RETRY))
    await finish(store, await claim(store), status="failed", error=BOOM)
    rollout = await finish(store, await claim(store), status="succeeded", reward=1.0)
    assert (rollout.status, rollout.error, rollout.reward) == ("succeeded", None, 1.0)


async def test_only_the_ends_named_in_retry_on_are_retried(store: LightningStore) -> None:
    config = RolloutConfig(max_attempts=5, retry_on=("timeout",))
    await store.enqueue_many_rollouts([asked(config=config), asked(config=config)])
    assert (await finish(store, await claim(store), status="failed", error=BOOM)).status == "failed"
    rollout = await finish(store, await claim(store), status="timeout")
    assert rollout.status == "requeuing"


async def test_a_retried_rollout_joins_the_end_of_the_queue(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked("a", config=RETRY), asked("b")])
    await finish(store, await claim(store), status="failed", error=BOOM)
    assert [(await claim(store)).rollout.task for _ in range(2)] == ["b", "a"]


async def test_a_repeat_of_the_final_report_is_answered(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked(), asked(config=RETRY)])
    held = await claim(store)
    report = {"status": "succeeded", "reward": 1.0, "reward_dimensions": {"a": 1.0}}
    assert await finish(store, held, **report) == await finish(store, held, **report)
    retried = await claim(store)
    await finish(store, retried, status="failed", error=BOOM)
    await claim(store)
    again = await store.update_attempt(
        retried.rollout.rollout_id, retried.attempt.attempt_id, status="failed", error=BOOM
    )
    assert (again.attempt.sequence_id, again.attempt.status, again.rollout.status) == (
        1,
        "failed",
        "preparing",
    )


@pytest.mark.parametrize(
    "late",
    [
        {"status": "failed", "error": BOOM},
        {"status": "succeeded", "reward": 0.0},
        {"status": "succeeded"},
        {"status": "running"},
        {"status": "cancelled"},
        {},
    ],
)
async def test_terminal_is_final_for_attempts(store: LightningStore, late: Any) -> None:
    await store.enqueue_rollout(asked(config=RETRY))
    held = await claim(store)
    before = await finish(store, held, status="succeeded", reward=1.0)
    with pytest.raises(ConflictError, match="terminal is final"):
        await finish(store, held, **late)
    assert await store.get_rollout_by_id(before.rollout_id) == before


async def test_a_report_of_a_superseded_attempt_is_refused(store: LightningStore) -> None:
    await store.enqueue_rollout(asked(config=RETRY))
    first = await claim(store, "w1")
    await finish(store, first, status="failed", error=BOOM)
    second = await claim(store, "w2")
    with pytest.raises(ConflictError, match="superseded"):
        await finish(store, first, status="succeeded", reward=1.0)
    assert (await store.get_rollout_by_id(second.rollout.rollout_id)).status == "preparing"
    assert (await finish(store, second, status="succeeded", reward=0.25)).reward == 0.25


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf")])
async def test_a_reward_that_is_not_finite_is_refused(store: LightningStore, reward: float) -> None:
    await store.enqueue_rollout(asked())
    held = await claim(store)
    with pytest.raises(InvalidRequestError, match="finite"):
        await finish(store, held, status="succeeded", reward=reward)
    with pytest.raises(InvalidRequestError, match="finite"):
        await finish(store, held, status="succeeded", reward=1.0, reward_dimensions={"a": reward})
    assert (await finish(store, held, status="succeeded", reward=1.0)).reward == 1.0


@pytest.mark.parametrize(
    "report",
    [
        {"reward": 1.0},
        {"status": "running", "reward": 1.0},
        {"status": "timeout", "reward": 1.0},
        {"status": "succeeded", "error": BOOM},
        {"status": "exploded"},
    ],
)
async def test_a_report_that_makes_no_sense_is_refused(store: LightningStore, report: Any) -> None:
    await store.enqueue_rollout(asked())
    held = await claim(store)
    with pytest.raises(InvalidRequestError):
        await finish(store, held, **report)
    assert (await store.get_rollout_by_id(held.rollout.rollout_id)).status == "preparing"


async def test_unknown_ids_are_not_found(store: LightningStore) -> None:
    one = await store.start_rollout(asked(rollout_id="ro-1"))
    await store.start_rollout(asked(rollout_id="ro-2"))
    for call in (
        store.get_rollout_by_id("none"),
        store.get_latest_attempt("none"),
        store.update_rollout("none", priority=1),
        store.cancel_rollout("none"),
        store.start_attempt("none"),
        store.update_attempt("none", "none"),
        store.update_attempt("ro-1", "none"),
        store.update_attempt("ro-2", one.attempt.attempt_id, status="succeeded"),
        store.wait_for_rollouts(["ro-1", "none"], timeout_seconds=0),
        store.get_resources_by_id("none"),
        store.update_run("none", status="failed"),
        store.add_metrics("none", 1, {"a": 1.0}),
        store.worker_heartbeat("none"),
        store.get_next_span_sequence_id("ro-1", "none"),
        store.get_next_span_sequence_id("ro-2", one.attempt.attempt_id),
    ):
        with pytest.raises(NotFoundError):
            await call


async def test_the_first_report_makes_an_attempt_run(store: LightningStore, clock: Any) -> None:
    await store.enqueue_rollout(asked(config=RolloutConfig(unresponsive_seconds=10)))
    held = await claim(store)
    clock.advance(4)
    seen = await store.update_attempt(held.rollout.rollout_id, held.attempt.attempt_id)
    assert (seen.attempt.status, seen.rollout.status) == ("running", "running")
    assert (seen.attempt.last_heartbeat_at, seen.attempt.lease) == (clock.now, clock.now + 10)
    with pytest.raises(ConflictError, match="back to preparing"):
        await finish(store, held, status="preparing")


async def test_a_report_may_name_the_worker(store: LightningStore) -> None:
    held = await store.start_rollout(asked())
    assert held.attempt.worker_id is None
    seen = await store.update_attempt(held.rollout.rollout_id, held.attempt.attempt_id, worker_id="w9")
    assert seen.attempt.worker_id == "w9"


# Past the queue.


async def test_start_rollout_goes_past_the_queue(store: LightningStore) -> None:
    await store.enqueue_rollout(asked("queued"))
    held = await store.start_rollout(asked("now", rollout_id="ro"), worker_id="w")
    assert (held.rollout.task, held.rollout.status, held.attempt.sequence_id) == ("now", "preparing", 1)
    assert held.attempt.worker_id == "w"
    assert (await claim(store)).rollout.task == "queued"
    assert await store.dequeue_rollout(worker_id="w") is None
    with pytest.raises(ConflictError, match="exists"):
        await store.start_rollout(asked(rollout_id="ro"))


async def test_start_attempt_takes_a_queued_rollout(store: LightningStore) -> None:
    await store.enqueue_rollout(asked(rollout_id="ro", config=RETRY))
    first = await store.start_attempt("ro", worker_id="w")
    assert await store.dequeue_rollout(worker_id="w") is None
    with pytest.raises(ConflictError, match="under way"):
        await store.start_attempt("ro")
    await finish(store, first, status="failed", error=BOOM)
    second = await store.start_attempt("ro")
    assert second.attempt.sequence_id == 2
    await finish(store, second, status="succeeded")
    with pytest.raises(ConflictError, match="finished"):
        await store.start_attempt("ro")


# Changes and cancellation.


async def test_a_waiting_rollout_can_be_cancelled(store: LightningStore, clock: Any) -> None:
    await store.enqueue_rollout(asked(rollout_id="ro"))
    rollout = await store.cancel_rollout("ro")
    assert (rollout.status, rollout.finished_at) == ("cancelled", clock.now)
    assert rollout.error is not None
    assert rollout.error.cause == "cancelled"
    assert await store.dequeue_rollout(worker_id="w") is None
    assert await store.cancel_rollout("ro") == rollout


async def test_a_cancelled_rollout_is_never_recorded_as_succeeded(store: LightningStore) -> None:
    await store.enqueue_rollout(asked(config=RETRY))
    held = await claim(store)
    await store.cancel_rollout(held.rollout.rollout_id)
    with pytest.raises(ConflictError):
        await finish(store, held, status="succeeded", reward=1.0)
    rollout = await store.get_rollout_by_id(held.rollout.rollout_id)
    attempt = await store.get_latest_attempt(held.rollout.rollout_id)
    assert attempt is not None
    assert (rollout.status, rollout.reward, attempt.status) == ("cancelled", None, "cancelled")
    assert await store.dequeue_rollout(worker_id="w") is None


@pytest.mark.parametrize("end", ["succeeded", "failed"])
async def test_a_finished_rollout_cannot_be_cancelled(store: LightningStore, end: Any) -> None:
    await store.enqueue_rollout(asked())
    rollout = await finish(store, await claim(store), status=end)
    with pytest.raises(ConflictError, match="terminal is final"):
        await store.cancel_rollout(rollout.rollout_id)
    assert await store.get_rollout_by_id(rollout.rollout_id) == rollout


async def test_a_worker_may_report_its_attempt_cancelled(store: LightningStore) -> None:
    await store.enqueue_rollout(asked(config=RETRY))
    assert (await finish(store, await claim(store), status="cancelled")).status == "cancelled"


async def test_a_terminal_rollout_accepts_metadata_and_nothing_else(store: LightningStore) -> None:
    await store.add_resources({"n": 1}, resources_id="rs")
    await store.enqueue_rollout(asked(rollout_id="ro"))
    await finish(store, await claim(store), status="succeeded", reward=1.0)
    assert (await store.update_rollout("ro", metadata={"seen": True})).metadata == {"seen": True}
    changes: list[dict[str, Any]] = [
        {"status": "requeuing"},
        {"status": "running"},
        {"status": "failed"},
        {"status": "cancelled"},
        {"status": "pending"},
        {"priority": 3},
        {"resources_id": "rs"},
        {"config": RETRY},
    ]
    for change in changes:
        with pytest.raises(ConflictError):
            await store.update_rollout("ro", **change)
    assert (await store.get_rollout_by_id("ro")).status == "succeeded"


async def test_an_open_rollout_can_be_changed(store: LightningStore) -> None:
    await store.add_resources({"n": 1}, resources_id="rs")
    await store.enqueue_rollout(asked(rollout_id="ro", metadata={"old": 1}))
    changed = await store.update_rollout(
        "ro", resources_id="rs", config=RETRY, metadata={"new": 1}, priority=2
    )
    assert (changed.resources_id, changed.config, changed.metadata, changed.priority) == (
        "rs",
        RETRY,
        {"new": 1},
        2,
    )
    assert await store.get_rollout_by_id("ro") == changed
    assert (await claim(store)).rollout.config == RETRY


async def test_only_an_attempt_starts_a_rollout(store: LightningStore) -> None:
    await store.enqueue_rollout(asked(rollout_id="ro"))
    for status in ("preparing", "running", "requeuing", "succeeded", "failed"):
        with pytest.raises(ConflictError):
            await store.update_rollout("ro", status=status)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidRequestError):
        await store.update_rollout("ro", status="lost")  # pyright: ignore[reportArgumentType]
    assert (await store.update_rollout("ro", status="pending")).status == "pending"
    assert (await store.update_rollout("ro", status="cancelled")).status == "cancelled"


async def test_a_rollout_can_be_taken_back_from_its_worker(store: LightningStore) -> None:
    await store.enqueue_rollout(asked(rollout_id="ro"))
    held = await claim(store, "w1")
    assert (await store.update_rollout("ro", status="requeuing")).status == "requeuing"
    with pytest.raises(ConflictError):
        await finish(store, held, status="succeeded", reward=1.0)
    again = await claim(store, "w2")
    assert (again.rollout.rollout_id, again.attempt.sequence_id) == ("ro", 2)


@pytest.mark.parametrize("end", ["succeeded", "failed"])
async def test_a_rollout_ended_by_hand_takes_its_attempt_along(store: LightningStore, end: Any) -> None:
    await store.enqueue_rollout(asked(rollout_id="ro", config=RETRY))
    held = await claim(store)
    rollout = await store.update_rollout("ro", status=end)
    attempt = await store.get_latest_attempt("ro")
    assert attempt is not None
    assert (rollout.status, attempt.status, attempt.finished_at is not None) == (end, end, True)
    with pytest.raises(ConflictError):
        await finish(store, held, status="failed", error=BOOM)


# Time.


async def test_a_lost_heartbeat_requeues_once(store: LightningStore, clock: Any) -> None:
    await store.enqueue_rollout(asked(config=RolloutConfig(unresponsive_seconds=10, max_attempts=2)))
    held = await claim(store, "w1")
    clock.advance(9.9)
    assert await store.dequeue_rollout(worker_id="w2") is None
    clock.advance(0.1)
    again = await claim(store, "w2")
    assert (again.rollout.rollout_id, again.attempt.sequence_id) == (held.rollout.rollout_id, 2)
    assert await store.dequeue_rollout(worker_id="w3") is None
    first = (await store.query_attempts(AttemptQuery(rollout_id=held.rollout.rollout_id))).items[0]
    assert (first.status, first.finished_at) == ("unresponsive", clock.now)
    assert first.error is not None
    assert first.error.cause == "unresponsive"
    assert "w1" in first.error.message
    with pytest.raises(ConflictError):
        await finish(store, held, status="succeeded", reward=1.0)


async def test_a_time_limit_ends_an_attempt_that_still_shows_life(store: LightningStore, clock: Any) -> None:
    await store.enqueue_rollout(asked(config=RolloutConfig(timeout_seconds=10, unresponsive_seconds=4)))
    held = await claim(store)
    for _ in range(3):
        clock.advance(3)
        await finish(store, held, status="running")
    clock.advance(1)
    rollout = (await store.wait_for_rollouts([held.rollout.rollout_id], timeout_seconds=0)) or [None]
    with pytest.raises(ConflictError):
        await finish(store, held, status="running")
    stored = await store.get_rollout_by_id(held.rollout.rollout_id)
    assert stored.status == "failed"
    assert stored.error is not None
    assert stored.error.cause == "timeout"
    assert rollout[0] in (None, stored)


async def test_without_limits_an_attempt_may_take_for_ever(store: LightningStore, clock: Any) -> None:
    await store.enqueue_rollout(asked())
    held = await claim(store)
    assert held.attempt.lease is None
    clock.advance(1e9)
    assert (await finish(store, held, status="succeeded", reward=1.0)).status == "succeeded"


async def test_a_changed_config_moves_the_deadline(store: LightningStore, clock: Any) -> None:
    await store.enqueue_rollout(asked(rollout_id="ro", config=RolloutConfig(timeout_seconds=10)))
    held = await claim(store)
    await store.update_rollout("ro", config=RolloutConfig(timeout_seconds=100))
    clock.advance(50)
    assert (await finish(store, held, status="running")).status == "running"
    await store.update_rollout("ro", config=RolloutConfig(timeout_seconds=51))
    clock.advance(1)
    with pytest.raises(ConflictError):
        await finish(store, held, status="running")


async def test_the_watchdog_looks_also_when_nobody_calls(store: LightningStore, clock: Any) -> None:
    await store.enqueue_rollout(asked(rollout_id="ro", config=RolloutConfig(timeout_seconds=0.05)))
    waiting = asyncio.create_task(store.wait_for_rollouts(["ro"]))
    await claim(store)
    clock.advance(0.05)  # the store's own timer is set for 0.05 s from the claim
    (rollout,) = await asyncio.wait_for(waiting, 10)
    assert rollout.error is not None
    assert (rollout.status, rollout.error.cause) == ("failed", "timeout")


# Waiting for the end.


async def test_wait_returns_the_finished_in_the_order_asked_for(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked(n, rollout_id=f"ro-{n}") for n in range(3)])
    waiting = asyncio.create_task(store.wait_for_rollouts(["ro-2", "ro-0"]))
    for _ in range(3):
        await finish(store, await claim(store), status="succeeded", reward=1.0)
    done = await asyncio.wait_for(waiting, 10)
    assert [rollout.rollout_id for rollout in done] == ["ro-2", "ro-0"]
    assert all(rollout.status == "succeeded" for rollout in done)


async def test_wait_is_ended_by_cancellation_too(store: LightningStore) -> None:
    await store.enqueue_rollout(asked(rollout_id="ro"))
    waiting = asyncio.create_task(store.wait_for_rollouts(["ro"]))
    await store.statistics()
    await store.cancel_rollout("ro")
    assert [rollout.status for rollout in await asyncio.wait_for(waiting, 10)] == ["cancelled"]


async def test_wait_returns_what_is_finished_when_time_is_up(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked(rollout_id="a"), asked(rollout_id="b", config=RETRY)])
    await finish(store, await claim(store), status="succeeded")
    await finish(store, await claim(store), status="failed", error=BOOM)  # waits for its retry: not finished
    assert [one.rollout_id for one in await store.wait_for_rollouts(["b", "a"], timeout_seconds=0)] == ["a"]
    assert [one.rollout_id for one in await store.wait_for_rollouts(["b", "a"], timeout_seconds=0.02)] == [
        "a"
    ]
    assert await store.wait_for_rollouts([], timeout_seconds=None) == []


async def test_close_lets_waiters_go_with_what_they_have(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked(rollout_id="a"), asked(rollout_id="b")])
    await finish(store, await claim(store), status="succeeded")
    await store.start_attempt("b")
    ends = asyncio.create_task(store.wait_for_rollouts(["a", "b"]))
    claims = asyncio.create_task(store.dequeue_many_rollouts(worker_id="w", wait_seconds=60))
    await store.statistics()
    await asyncio.wait_for(store.close(), 10)
    assert [one.rollout_id for one in await ends] == ["a"]
    assert await claims == []
    with pytest.raises(StoreUnavailableError):
        await store.enqueue_rollout(asked())
    with pytest.raises(StoreUnavailableError):
        await store.query_spans(SpanQuery())
    with pytest.raises(StoreUnavailableError):
        await store.dequeue_rollout(worker_id="w")


# Lists.


async def test_lists_filter(store: LightningStore, clock: Any) -> None:
    await store.add_resources({"n": 1}, resources_id="rs")
    await store.enqueue_many_rollouts(
        [
            asked("a", rollout_id="a", run_id="r1", group_id="g1", mode="val"),
            asked("b", rollout_id="b", run_id="r1", group_id="g2", resources_id="rs"),
        ]
    )
    clock.advance(10)
    await store.enqueue_many_rollouts([asked("c", rollout_id="c", run_id="r2", group_id="g1")])
    await finish(store, await claim(store, "w1", run_id="r2"), status="succeeded")
    await claim(store, "w2", run_id="r1")

    async def found(**filters: Any) -> list[str]:
        return [rollout.rollout_id for rollout in (await store.query_rollouts(RolloutQuery(**filters))).items]

    assert await found() == ["a", "b", "c"]
    assert await found(order="desc") == ["c", "b", "a"]
    assert await found(run_id="r1") == ["a", "b"]
    assert await found(status=("pending",)) == ["b"]
    assert await found(status=("pending", "succeeded")) == ["b", "c"]
    assert await found(status=()) == []
    assert await found(mode="val") == ["a"]
    assert await found(group_id="g1") == ["a", "c"]
    assert await found(worker_id="w1") == ["c"]
    assert await found(rollout_ids=("c", "a", "none")) == ["a", "c"]
    assert await found(created_after=clock.now - 10) == ["c"]
    assert await found(created_before=clock.now) == ["a", "b"]
    assert await found(run_id="r1", status=("preparing",)) == ["a"]
    assert await found(resources_id="rs", status=("pending",)) == ["b"]
    assert await found(run_id="none") == []


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("sort_by", ["created_at", "started_at", "finished_at", "reward"])
async def test_pages_in_every_order_show_each_rollout_once(
    store: LightningStore, clock: Any, sort_by: Any, order: Any
) -> None:
    for number in range(12):  # ties in every key, and rollouts without the key
        await store.enqueue_rollout(asked(number))
        clock.advance(number % 2)
    for number in range(8):
        held = await claim(store)
        clock.advance(number % 2)
        if number < 6:
            await finish(
                store, held, status="succeeded", reward=float(number // 2 % 2) if number < 5 else None
            )
    everything = [rollout async for rollout in iter_rollouts(store)]

    def key(rollout: Rollout) -> float | None:
        return getattr(rollout, sort_by)

    position = {rollout.rollout_id: number for number, rollout in enumerate(everything)}
    with_key = [one for one in everything if key(one) is not None]
    without = [one for one in everything if key(one) is None]
    reverse = order == "desc"
    expected = sorted(with_key, key=lambda one: (key(one), position[one.rollout_id]), reverse=reverse)
    expected += without[::-1] if reverse else without  # a missing key comes last in both orders
    for limit in (1, 3, 5, 12):
        query = RolloutQuery(sort_by=sort_by, order=order, limit=limit)
        assert [one.task async for one in iter_rollouts(store, query)] == [one.task for one in expected]


async def test_a_page_is_stable_while_rollouts_arrive(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked(n) for n in range(4)])
    page = await store.query_rollouts(RolloutQuery(limit=2))
    await store.enqueue_rollout(asked(4))
    await finish(store, await claim(store), status="succeeded")
    rest = await store.query_rollouts(RolloutQuery(limit=10, cursor=page.next_cursor))
    assert [one.task for one in (*page.items, *rest.items)] == [0, 1, 2, 3, 4]
    assert rest.next_cursor is None


async def test_the_last_page_has_no_cursor(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked(n) for n in range(2)])
    assert (await store.query_rollouts(RolloutQuery(limit=2))).next_cursor is None
    assert (await store.query_rollouts(RolloutQuery(limit=1))).next_cursor is not None


async def test_a_cursor_of_another_list_is_refused(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked(n) for n in range(2)])
    cursor = (await store.query_rollouts(RolloutQuery(limit=1))).next_cursor
    for query in (
        RolloutQuery(cursor="nonsense"),
        RolloutQuery(cursor="ä"),
        RolloutQuery(cursor=cursor, order="desc"),
        RolloutQuery(cursor=cursor, sort_by="reward"),
    ):
        with pytest.raises(InvalidRequestError, match="cursor"):
            await store.query_rollouts(query)


async def test_attempts_are_listed_in_the_order_of_their_start(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked("a", rollout_id="a", config=RETRY), asked("b", rollout_id="b")])
    await finish(store, await claim(store, "w1"), status="failed", error=BOOM)
    await claim(store, "w2")
    await claim(store, "w2")

    async def found(**filters: Any) -> list[tuple[str, int]]:
        page = await store.query_attempts(AttemptQuery(**filters))
        return [(attempt.rollout_id, attempt.sequence_id) for attempt in page.items]

    assert await found() == [("a", 1), ("b", 1), ("a", 2)]
    assert await found(rollout_id="a") == [("a", 1), ("a", 2)]
    assert await found(rollout_id="a", order="desc", limit=1) == [("a", 2)]
    assert await found(worker_id="w2") == [("b", 1), ("a", 2)]
    assert await found(status=("failed",)) == [("a", 1)]
    assert await found(rollout_id="none") == []
    page = await store.query_attempts(AttemptQuery(limit=2))
    rest = await store.query_attempts(AttemptQuery(limit=2, cursor=page.next_cursor))
    assert [(one.rollout_id, one.sequence_id) for one in rest.items] == [("a", 2)]


async def test_a_rollout_without_attempts_has_no_latest_one(store: LightningStore) -> None:
    await store.enqueue_rollout(asked(rollout_id="ro"))
    assert await store.get_latest_attempt("ro") is None


async def test_enqueued_is_succeeded_and_failed_and_cancelled_and_open(store: LightningStore) -> None:
    await store.enqueue_many_rollouts([asked(n, rollout_id=f"ro-{n}", run_id="r") for n in range(6)])
    await store.enqueue_rollout(asked(run_id="other"))
    for report in ({"status": "succeeded"}, {"status": "failed"}, {"status": "running"}):
        await finish(store, await claim(store, run_id="r"), **report)
    await claim(store, run_id="r")
    await store.cancel_rollout("ro-4")
    counts = await store.statistics(run_id="r")
    assert counts["rollouts"] == {
        "pending": 1,
        "preparing": 1,
        "running": 1,
        "requeuing": 0,
        "succeeded": 1,
        "failed": 1,
        "cancelled": 1,
    }
    assert sum(counts["attempts"].values()) == 4
    assert (counts["spans"], counts["workers"], counts["runs"]) == (0, 1, 0)
    assert sum((await store.statistics())["rollouts"].values()) == 7


async def test_health_names_the_store(store: LightningStore) -> None:
    health = await store.health()
    assert health["status"] == "ok"
    assert health["schema_version"] >= 1  # each kind of store counts its own
    assert len(health["identity"]) == 36
    assert (await store.health())["identity"] == health["identity"]
