"""A runner by role serves one run, from before it begins until it has ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from agl.launch.joining import LOOK_SECONDS, run_ended, run_succeeded, serve_run
from agl.launch.local import Parts
from agl.store.base import LightningStore
from agl.store.sqlite import InMemoryLightningStore
from agl.types import RunStatus


class Story:
    """What happens to the run ``r`` while a runner sleeps, one status a nap."""

    def __init__(self, store: LightningStore, *statuses: RunStatus) -> None:
        self.store, self.statuses = store, list(statuses)
        self.notes: list[str] = []

    async def sleep(self, seconds: float) -> None:
        assert seconds == LOOK_SECONDS
        await self.store.add_run(name="mine", run_id="r")
        await self.store.update_run("r", status=self.statuses.pop(0))

    async def end(self, *, resumes: bool = False) -> RunStatus:
        return await run_ended(
            self.store, run_id="r", name="mine", resumes=resumes, note=self.notes.append, sleep=self.sleep
        )


async def test_a_runner_may_come_before_its_run_and_leaves_when_that_has_ended() -> None:
    async with InMemoryLightningStore() as store:
        await store.add_run(name="mine", run_id="another")
        story = Story(store, "running", "running", "succeeded")
        assert await story.end() == "succeeded"
    assert story.notes == [
        "runner: waiting for the run r to begin",
        "runner: serving the run r until it ends",
    ]


@pytest.mark.parametrize("status", ["failed", "interrupted"])
async def test_a_run_that_stopped_before_is_waited_for_one_that_stops_now_is_left(status: RunStatus) -> None:
    async with InMemoryLightningStore() as store:
        await store.add_run(name="mine", run_id="r")
        await store.update_run("r", status=status)
        story = Story(store, status, "running", status)
        assert await story.end() == status
    assert story.statuses == []
    assert story.notes[0] == f"runner: the run r ended before ({status}): waiting for it to be resumed"


async def test_a_run_that_has_succeeded_is_left_at_once_unless_it_is_to_go_on() -> None:
    async with InMemoryLightningStore() as store:
        await store.add_run(name="mine", run_id="r")
        await store.update_run("r", status="succeeded")
        assert await Story(store).end() == "succeeded"
        story = Story(store, "running", "failed")
        assert await story.end(resumes=True) == "failed"


async def test_rollouts_are_executed_while_the_run_lasts_and_no_longer() -> None:
    log: list[str] = []

    class Runner:
        needs_store_url = False

        @asynccontextmanager
        async def running(self, store: object, agent: object, **given: Any) -> AsyncGenerator[None]:
            log.append(f"serves {given['run_id']}")
            yield
            log.append("left")

    async with InMemoryLightningStore() as store:
        story = Story(store, "running", "succeeded")
        parts = Parts(
            store=store,
            engine=None,
            learner=None,
            proxy=None,
            runner=Runner(),
            agent=SimpleNamespace(name="agent", run=print),
        )
        note: Callable[[str], None] = log.append
        assert await serve_run(parts, run_id="r", name="mine", note=note, sleep=story.sleep) == "succeeded"
    assert [log[0], log[-1]] == ["serves r", "left"]


async def test_a_run_that_was_seen_at_work_has_succeeded_only_when_it_has() -> None:
    async with InMemoryLightningStore() as store:
        await store.add_run(name="mine", run_id="r")
        await store.update_run("r", status="succeeded")  # before: it is to be resumed
        story = Story(store, "running", "interrupted", "failed", "running", "succeeded")
        await run_succeeded(store, run_id="r", sleep=story.sleep)
        assert story.statuses == []
