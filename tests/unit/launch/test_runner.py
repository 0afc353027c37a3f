"""A runner that joins: opened with its store, drained by SIGTERM, ended at once by a cancel."""

import asyncio
import os
import signal

import pytest

from agl.errors import ConfigError, StoreUnavailableError
from agl.launch.runner import Joined, StandaloneRunner
from agl.runners.inline import InlineRunners
from agl.runners.remote import RemoteRunners
from agl.store.sqlite import SqliteLightningStore
from agl.types import RolloutRequest


async def test_it_executes_the_runs_rollouts_until_sigterm_lets_it_finish_what_is_in_hand(tmp_path) -> None:
    path = str(tmp_path / "store.sqlite")
    began, release = asyncio.Event(), asyncio.Event()

    async def agent(task):
        began.set()
        await release.wait()
        return 1.0

    agent.__qualname__ = "agent"

    store = SqliteLightningStore(path)
    async with store:
        for run_id in ("mine", "other"):
            await store.enqueue_rollout(RolloutRequest(task=0, rollout_id=run_id, run_id=run_id))
        identity = (await store.health())["identity"]
    joined: list[Joined] = []
    runner = StandaloneRunner(store=store, agent=agent, runner=InlineRunners(), run_id="mine")
    serving = asyncio.create_task(runner.serve(on_joined=joined.append))
    await began.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    release.set()
    await serving
    assert joined == [Joined(records=path, identity=identity, agent="agent", run_id="mine")]
    with pytest.raises(StoreUnavailableError):
        await store.statistics()
    async with store:
        assert (await store.get_rollout_by_id("mine")).status == "succeeded"
        assert (await store.get_rollout_by_id("other")).status == "pending"


async def test_a_cancel_hands_back_what_is_in_hand(tmp_path) -> None:
    began = asyncio.Event()

    async def agent(task):
        began.set()
        await asyncio.Event().wait()

    store = SqliteLightningStore(str(tmp_path / "store.sqlite"))
    async with store:
        await store.enqueue_rollout(RolloutRequest(task=0, rollout_id="r"))
    runner = StandaloneRunner(store=store, agent=agent, runner=InlineRunners(drain_seconds=60.0))
    serving = asyncio.create_task(runner.serve(on_joined=lambda _: None))
    await began.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    async with store:
        assert (await store.get_rollout_by_id("r")).status == "requeuing"


async def test_a_runner_of_one_run_leaves_when_that_has_succeeded(tmp_path) -> None:
    store, notes = SqliteLightningStore(str(tmp_path / "store.sqlite")), list[str]()
    joined, looked = asyncio.Event(), asyncio.Event()
    query_runs = store.query_runs

    async def seen(*arguments):
        page = await query_runs(*arguments)
        looked.set()
        return page

    store.query_runs = seen
    runner = StandaloneRunner(store=store, agent=print, runner=InlineRunners(), run_id="r")
    async with store:
        await store.add_run(name="train", run_id="r")
    serving = asyncio.create_task(runner.serve(on_joined=lambda _: joined.set(), note=notes.append))
    await joined.wait()
    await looked.wait()
    await store.update_run("r", status="succeeded")
    async with asyncio.timeout(20):
        await serving
    assert notes == ["the run r has succeeded: its runner leaves"]


def test_runners_elsewhere_are_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match="runner=remote runs nothing"):
        StandaloneRunner(store=SqliteLightningStore(str(tmp_path / "s")), agent=print, runner=RemoteRunners())
