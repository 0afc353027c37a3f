"""Dequeue and wait, as callers on an event loop see them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from agl.errors import InvalidRequestError
from agl.store.sqlite import InMemoryLightningStore
from agl.store.sqlite.access import Access
from agl.store.sqlite.queue import SqliteQueue
from agl.types import RolloutRequest


@pytest.mark.parametrize("wait", [-1.0, float("nan")])
async def test_a_wait_that_is_no_time_is_refused(wait: float) -> None:
    async with InMemoryLightningStore() as store:
        with pytest.raises(InvalidRequestError):
            await store.dequeue_rollout(worker_id="w", wait_seconds=wait)


class Answers(Access):
    """Hands out futures instead of running operations."""

    def __init__(self) -> None:
        super().__init__(":memory:", clock=float, new_id=str)
        self.asked: list[asyncio.Future[Any]] = []

    def write(self, operation: Any, *, undo: Any = None) -> asyncio.Future[Any]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]

    @contextmanager
    def visit(self) -> Generator[None]:
        yield


class Queue(SqliteQueue):
    def __init__(self, access: Access) -> None:
        self._access = access


async def test_a_claim_that_was_answered_but_not_received_goes_back() -> None:
    answers = Answers()
    dequeue = asyncio.create_task(Queue(answers).dequeue_many_rollouts(worker_id="w"))
    await asyncio.sleep(0)
    answers.asked[0].set_result(["claimed"])
    dequeue.cancel()  # after the answer, before the caller runs again
    with pytest.raises(asyncio.CancelledError):
        await dequeue
    assert len(answers.asked) == 2  # the second one takes the claim back


async def test_many_waiters_and_many_rollouts_meet() -> None:
    async with InMemoryLightningStore() as store:

        async def runner(name: str) -> int:
            count = 0
            while await store.dequeue_rollout(worker_id=name, wait_seconds=0.2):
                count += 1
            return count

        runners = [asyncio.create_task(runner(f"w{number}")) for number in range(8)]
        for number in range(40):
            await store.enqueue_rollout(RolloutRequest(task=number))
        assert sum(await asyncio.gather(*runners)) == 40
