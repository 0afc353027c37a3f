"""A wait says whom it waits for."""

from __future__ import annotations

import pytest

from agl.evaluation.waiting import Watch, waited_words
from agl.store.sqlite import SqliteStore
from agl.types import Rollout, RolloutConfig, RolloutRequest

FAR_FUTURE = 5e9
"""The store's clock: decades from the one here, which must not matter."""
RETRIED = RolloutConfig(max_attempts=3, retry_delay_seconds=100.0)


class Scene:
    """A store, the time that passes, and a wait for its rollouts."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.store = SqliteStore(":memory:", clock=lambda: FAR_FUTURE + self.seconds)

    async def enqueue(self, *names: str) -> list[Rollout]:
        requests = [
            RolloutRequest(task=0, rollout_id=f"run-{name}", run_id="run", config=RETRIED) for name in names
        ]
        self.rollouts = await self.store.enqueue_many_rollouts(requests)
        self.watch = Watch(self.store, self.rollouts, time=lambda: self.seconds)
        return self.rollouts

    async def work(self, worker_id: str, *, limit: int = 1, register: bool = True) -> list[tuple[str, str]]:
        if register:
            await self.store.register_worker(worker_id)
        held = await self.store.dequeue_many_rollouts(worker_id=worker_id, limit=limit)
        return [(one.rollout.rollout_id, one.attempt.attempt_id) for one in held]

    async def words(self) -> str:
        missing = [one.rollout_id for one in self.rollouts]
        return await self.watch.whom(missing)


async def test_without_a_worker_no_runner_is_connected() -> None:
    scene = Scene()
    async with scene.store:
        await scene.enqueue("a", "b")
        assert await scene.words() == "no runner is connected"
        await scene.store.register_worker("gone")
        await scene.store.worker_heartbeat("gone", stats={"ended": True})
        assert await scene.words() == "no runner is connected"
        await scene.store.register_worker("silent")
        assert await scene.words() == "2 in the queue of 1 runner"
        scene.seconds += 61.0
        assert await scene.words() == "no runner is connected"


async def test_the_slowest_are_named_with_their_worker_and_since_when() -> None:
    scene = Scene()
    async with scene.store:
        await scene.enqueue("i1-g0-0", "i1-g0-1", "i1-g1-0", "i1-g1-1")
        scene.seconds = 10.0
        await scene.work("host-1")
        scene.seconds = 30.0
        await scene.work("host-2", limit=2)
        scene.seconds = 95.0
        await scene.store.worker_heartbeat("host-1")
        assert await scene.words() == "i1-g0-0 on host-1 for 1:25, i1-g0-1 on host-2 for 1:05"
        scene.seconds = 200.0
        assert (await scene.words()).endswith("no runner is connected any more")


async def test_pauses_before_retries_are_told() -> None:
    scene = Scene()
    async with scene.store:
        await scene.enqueue("a", "b")
        ((rollout_id, attempt_id),) = await scene.work("w")
        await scene.store.update_attempt(rollout_id, attempt_id, status="failed")
        retry_at = (await scene.store.get_rollout_by_id(rollout_id)).retry_at
        assert retry_at is not None
        scene.seconds = retry_at - FAR_FUTURE - 7.0
        await scene.store.register_worker("w")
        assert await scene.words() == (
            "1 pauses before a retry, the next for 0:07, 1 in the queue of 1 runner"
        )
        scene.seconds += 7.0
        await scene.work("w", limit=2)
        scene.seconds += 3.0
        assert "a on w for 0:03 (attempt 2)" in await scene.words()


@pytest.mark.parametrize(
    ("num_open", "needed", "words"), [(1, 1, "1 rollout"), (5, 5, "5 rollouts"), (5, 2, "2 of 5 rollouts")]
)
def test_how_many_must_still_end(num_open: int, needed: int, words: str) -> None:
    assert waited_words(num_open, needed) == words
