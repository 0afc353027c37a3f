"""The loop: claim, execute, report, stay alive, stop."""

import asyncio
import logging

import pytest

import agl
from agl.errors import ConfigError, InvalidRequestError, StoreUnavailableError
from agl.runners.runner import LitAgentRunner, RunnerStats
from agl.types import RolloutConfig, RolloutRequest


async def started(runner: LitAgentRunner) -> tuple[asyncio.Task[RunnerStats], asyncio.Event]:
    stop = asyncio.Event()
    return asyncio.create_task(runner.run(stop)), stop


async def enqueued(store, count: int = 1, **config) -> list[str]:
    requests = [RolloutRequest(task=number, config=RolloutConfig(**config)) for number in range(count)]
    return [rollout.rollout_id for rollout in await store.enqueue_many_rollouts(requests)]


async def finished(store, ids: list[str]):
    return await store.wait_for_rollouts(ids, timeout_seconds=20)


async def test_many_rollouts_are_claimed_at_once_and_never_more_than_fit(store) -> None:
    limits: list[int] = []
    running, most = 0, 0
    dequeue = store.dequeue_many_rollouts

    async def counted(**arguments):
        limits.append(arguments["limit"])
        return await dequeue(**arguments)

    async def agent(task):
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0.001)
        running -= 1
        return 1.0

    store.dequeue_many_rollouts = counted
    ids = await enqueued(store, 40)
    task, stop = await started(LitAgentRunner(store, agent, max_concurrency=8))
    await finished(store, ids)
    stop.set()
    stats = await task
    assert most == 8
    assert limits[0] == 8
    assert (stats.claimed, stats.succeeded) == (40, 40)


async def test_heartbeats_keep_a_silent_attempt_alive(store) -> None:
    release = asyncio.Event()

    async def agent(task):
        await release.wait()
        return 1.0

    ids = await enqueued(store, unresponsive_seconds=0.3)
    task, stop = await started(LitAgentRunner(store, agent, heartbeat_seconds=0.02))
    assert await store.wait_for_rollouts(ids, timeout_seconds=0.9) == []
    release.set()
    (rollout,) = await finished(store, ids)
    stop.set()
    await task
    assert (rollout.status, rollout.num_attempts) == ("succeeded", 1)


async def test_heartbeats_come_as_often_as_the_rollouts_patience_asks(store) -> None:
    release = asyncio.Event()

    async def agent(task):
        await release.wait()
        return 1.0

    task, stop = await started(LitAgentRunner(store, agent, heartbeat_seconds=3600))
    ids = await enqueued(store, unresponsive_seconds=0.3)
    assert await store.wait_for_rollouts(ids, timeout_seconds=0.9) == []
    release.set()
    (rollout,) = await finished(store, ids)
    stop.set()
    await task
    assert (rollout.status, rollout.num_attempts) == ("succeeded", 1)


async def test_a_report_that_the_store_cannot_take_still_ends_the_rollout(store) -> None:
    update = store.update_attempt

    async def picky(rollout_id, attempt_id, **report):
        if report["status"] == "succeeded":
            raise InvalidRequestError("not like this")
        return await update(rollout_id, attempt_id, **report)

    async def agent(task):
        return 1.0

    store.update_attempt = picky
    ids = await enqueued(store)
    task, stop = await started(LitAgentRunner(store, agent))
    (rollout,) = await finished(store, ids)
    stop.set()
    stats = await task
    assert (rollout.status, rollout.reward) == ("failed", None)
    assert (rollout.error.cause, rollout.error.message) == ("unreportable", "not like this")
    assert stats.failed == {"unreportable": 1}


async def test_a_cancelled_rollout_stops_its_agent(store) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def agent(task):
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    ids = await enqueued(store)
    task, stop = await started(LitAgentRunner(store, agent, heartbeat_seconds=0.01))
    await began.wait()
    await store.cancel_rollout(ids[0])
    await asyncio.wait_for(ended.wait(), 5)
    stop.set()
    stats = await task
    assert (await store.get_rollout_by_id(ids[0])).status == "cancelled"
    assert (stats.claimed, stats.superseded) == (1, 1)


async def test_a_late_result_is_refused_and_logged(store, caplog) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def agent(task):
        began.set()
        await release.wait()
        return 1.0

    (rollout_id,) = await enqueued(store)
    task, stop = await started(LitAgentRunner(store, agent, heartbeat_seconds=60))
    await began.wait()
    attempt = await store.get_latest_attempt(rollout_id)
    await store.update_attempt(rollout_id, attempt.attempt_id, status="timeout")
    release.set()
    stop.set()
    stats = await task
    rollout = await store.get_rollout_by_id(rollout_id)
    assert (rollout.status, rollout.reward) == ("failed", None)
    assert (stats.superseded, stats.succeeded) == (1, 0)
    assert f"the report of rollout {rollout_id}" in caplog.text
    assert (await store.statistics())["spans"] == 2  # kept as history


async def test_stop_finishes_what_is_in_hand_and_takes_nothing_new(store) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def agent(task):
        began.set()
        await release.wait()
        return 1.0

    first = await enqueued(store)
    task, stop = await started(LitAgentRunner(store, agent, max_concurrency=4))
    await began.wait()
    stop.set()
    await asyncio.sleep(0)
    second = await enqueued(store)
    release.set()
    stats = await task
    assert (await store.get_rollout_by_id(first[0])).status == "succeeded"
    assert (await store.get_rollout_by_id(second[0])).status == "pending"
    assert (stats.claimed, stats.succeeded) == (1, 1)


async def test_stop_ends_an_idle_runner_at_once(store) -> None:
    claiming = asyncio.Event()
    dequeue = store.dequeue_many_rollouts

    async def watched(**arguments):
        claiming.set()
        return await dequeue(**arguments)

    store.dequeue_many_rollouts = watched
    task, stop = await started(LitAgentRunner(store, print))
    await claiming.wait()
    stop.set()
    assert (await asyncio.wait_for(task, 2)).claimed == 0


async def test_a_cancelled_runner_stops_its_agents_and_hands_their_rollouts_back(store) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def agent(task):
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    (rollout_id,) = await enqueued(store)
    runner = LitAgentRunner(store, agent)
    task, _ = await started(runner)
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert (await store.get_rollout_by_id(rollout_id)).status == "requeuing"
    assert (await store.get_latest_attempt(rollout_id)).status == "cancelled"
    assert (runner.stats.claimed, runner.stats.handed_back) == (1, 1)
    (again,) = await store.dequeue_many_rollouts(worker_id="other")
    assert again.rollout.rollout_id == rollout_id


async def test_an_unavailable_store_is_waited_for(store, caplog) -> None:
    failures = {"dequeue_many_rollouts": 1, "update_attempt": 1, "worker_heartbeat": 1, "register_worker": 1}

    def flaky(name):
        call = getattr(store, name)

        async def answer(*args, **kwargs):
            if failures[name]:
                failures[name] -= 1
                raise StoreUnavailableError(f"{name} is away")
            return await call(*args, **kwargs)

        return answer

    for name in failures:
        setattr(store, name, flaky(name))

    async def agent(task):
        return 1.0

    ids = await enqueued(store, 3)
    task, stop = await started(LitAgentRunner(store, agent, heartbeat_seconds=0.01))
    assert [rollout.reward for rollout in await finished(store, ids)] == [1.0] * 3
    stop.set()
    stats = await task
    assert (stats.claimed, stats.succeeded) == (3, 3)
    assert "dequeue_many_rollouts is away" in caplog.text


async def test_a_lost_answer_to_a_claim_is_asked_for_again_with_the_same_id(store) -> None:
    ids: list[str] = []
    dequeue = store.dequeue_many_rollouts

    async def lossy(**arguments):
        ids.append(arguments["request_id"])
        answer = await dequeue(**arguments)
        if len(ids) == 1:
            raise StoreUnavailableError("the answer got lost")
        return answer

    async def agent(task):
        return 1.0

    store.dequeue_many_rollouts = lossy
    rollout_ids = await enqueued(store, 3)
    task, stop = await started(LitAgentRunner(store, agent))
    rollouts = await finished(store, rollout_ids)
    stop.set()
    await task
    assert ids[0] == ids[1] != ids[2]
    assert [rollout.num_attempts for rollout in rollouts] == [1, 1, 1]


async def test_an_unexpected_failure_of_the_store_is_the_runners_failure(store) -> None:
    async def broken(*args, **kwargs):
        raise ZeroDivisionError("a bug in the store")

    store.dequeue_many_rollouts = broken
    task, _ = await started(LitAgentRunner(store, print))
    with pytest.raises(ZeroDivisionError, match="a bug in the store"):
        await task


async def test_the_worker_shows_its_counts_and_what_it_has_in_hand(store) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def agent(task):
        if task == 0:
            return 1.0
        began.set()
        await release.wait()
        raise ValueError("x")

    ids = await enqueued(store, 2)
    task, stop = await started(LitAgentRunner(store, agent, worker_id="w1", heartbeat_seconds=0.01))
    await began.wait()
    attempt = await store.get_latest_attempt(ids[1])
    while True:
        (worker,) = await store.get_active_workers()
        if worker.attempts == (attempt.attempt_id,):
            break
        await asyncio.sleep(0.005)
    assert (worker.worker_id, worker.status) == ("w1", "busy")
    release.set()
    await finished(store, ids)
    stop.set()
    await task
    (worker,) = await store.get_active_workers()
    assert (worker.attempts, worker.status) == ((), "idle")
    assert worker.stats == {
        "claimed": 2,
        "succeeded": 1,
        "without_reward": 0,
        "failed": {"ValueError": 1},
        "superseded": 0,
        "handed_back": 0,
        "spans_lost": {},
        "run_id": None,
        "ended": True,
    }


async def test_a_runner_of_a_run_takes_only_its_rollouts(store) -> None:
    async def agent(task):
        return 1.0

    await store.add_run(name="one", run_id="one")
    await store.add_run(name="two", run_id="two")
    mine, other = await store.enqueue_many_rollouts(
        [RolloutRequest(task=0, run_id=run) for run in ("one", "two")]
    )
    task, stop = await started(LitAgentRunner(store, agent, run_id="one"))
    await finished(store, [mine.rollout_id])
    stop.set()
    await task
    assert (await store.get_rollout_by_id(other.rollout_id)).status == "pending"


async def test_two_runners_share_the_work(store) -> None:
    async def agent(task):
        await asyncio.sleep(0)
        return 1.0

    ids = await enqueued(store, 60)
    one, stop_one = await started(LitAgentRunner(store, agent, max_concurrency=4))
    two, stop_two = await started(LitAgentRunner(store, agent, max_concurrency=4))
    rollouts = await finished(store, ids)
    stop_one.set()
    stop_two.set()
    stats = await asyncio.gather(one, two)
    assert [rollout.num_attempts for rollout in rollouts] == [1] * 60
    assert sum(item.succeeded for item in stats) == 60
    assert all(item.succeeded for item in stats)


async def test_a_blocked_event_loop_is_said(store, caplog) -> None:
    import time

    async def agent(task):
        time.sleep(0.2)  # noqa: ASYNC251 - the mistake that is to be noticed
        await asyncio.sleep(0.05)
        return 1.0

    ids = await enqueued(store)
    with caplog.at_level(logging.WARNING):
        task, stop = await started(LitAgentRunner(store, agent, heartbeat_seconds=0.02))
        await finished(store, ids)
        stop.set()
        await task
    assert "the event loop was blocked" in caplog.text


@pytest.mark.parametrize("setting", [{"max_concurrency": 0}, {"heartbeat_seconds": 0.0}])
def test_a_runner_that_could_not_work_is_refused(setting) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        LitAgentRunner(None, print, **setting)  # type: ignore[arg-type]


def test_the_public_name_is_the_runner() -> None:
    assert agl.LitAgentRunner is LitAgentRunner
