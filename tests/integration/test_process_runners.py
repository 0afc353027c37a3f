"""Runner processes: killed, stopped, drained, orphaned; nothing is lost, and nothing is left."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import process_agents
import pytest
from awaited import children_of, ended, number_in, soon

from agl.errors import ConfigError, RunStoppedError, StoreChangedError
from agl.runners.processes import ProcessRunners
from agl.store.base import LightningStore
from agl.store.server import StoreServer
from agl.store.sqlite import InMemoryLightningStore
from agl.types import Rollout, RolloutConfig, RolloutRequest

TOKEN = "secret-of-the-store-0123456789"


@pytest.fixture
async def served() -> AsyncIterator[tuple[LightningStore, str]]:
    async with InMemoryLightningStore() as store, StoreServer(store, port=0, token=TOKEN).serving() as url:
        yield store, url


def pool(url: str, store: LightningStore, agent: Any = process_agents.obedient, **settings: Any) -> Any:
    runners = ProcessRunners(**{"processes": 1, "heartbeat_seconds": 0.2, **settings})
    return runners.running(store, agent, store_url=url, store_token=TOKEN)


async def enqueued(store: LightningStore, *tasks: dict[str, Any], **config: Any) -> list[str]:
    requests = [RolloutRequest(task=task, config=RolloutConfig(**config)) for task in tasks]
    return [rollout.rollout_id for rollout in await store.enqueue_many_rollouts(requests)]


async def done(store: LightningStore, ids: list[str]) -> list[Rollout]:
    return await store.wait_for_rollouts(ids, timeout_seconds=60)


async def test_rollouts_are_executed_by_children_each_with_a_worker_row(served, tmp_path: Path) -> None:
    store, url = served
    tasks = [{"started": str(tmp_path / f"{n}"), "release": str(tmp_path / "go")} for n in range(4)]
    async with pool(url, store, processes=2, max_concurrency=2) as running:
        ids = await enqueued(store, *tasks)
        pids = [await number_in(tmp_path / f"{n}") for n in range(4)]
        assert set(pids) == set(running.pids)
        workers = await store.get_active_workers()
        assert {worker.pid for worker in workers} == set(pids)
        (tmp_path / "go").touch()
        assert [rollout.reward for rollout in await done(store, ids)] == [1.0] * 4
    assert running.pids == []
    assert [worker.stats["ended"] for worker in await store.get_active_workers()] == [True, True]


async def test_a_killed_child_is_replaced_and_its_rollout_retried_as_the_policy_says(
    served, tmp_path: Path
) -> None:
    store, url = served
    task = {
        "started": str(tmp_path / "pid"),
        "program": str(tmp_path / "program"),
        "release": str(tmp_path / "go"),
    }
    async with pool(url, store) as running:
        ids = await enqueued(store, task, max_attempts=2, unresponsive_seconds=1.0)
        once = await enqueued(store, task, max_attempts=1, unresponsive_seconds=1.0)
        first, program = await number_in(tmp_path / "pid"), await number_in(tmp_path / "program")
        os.kill(first, signal.SIGKILL)
        await ended(program)  # what the agent had started
        (tmp_path / "go").touch()
        (again,) = await done(store, ids)
        assert (again.status, again.num_attempts) == ("succeeded", 2)
        (given_up,) = await done(store, once)
        assert given_up.status == "failed"
        assert given_up.error is not None
        assert given_up.error.cause == "unresponsive"
        assert running.pids != [first]


async def test_a_report_that_comes_too_late_is_refused(served, tmp_path: Path, caplog) -> None:
    store, url = served
    caplog.set_level(logging.INFO)
    task = {"started": str(tmp_path / "pid"), "release": str(tmp_path / "go"), "reward": 0.25}
    async with pool(
        url, store, max_concurrency=1
    ):  # full: it waits for no other rollout, which it would be given
        (rollout_id,) = await enqueued(store, task, max_attempts=2, unresponsive_seconds=1.0)
        stopped = await number_in(tmp_path / "pid")
        os.kill(stopped, signal.SIGSTOP)

        async def lost() -> bool:
            return (await store.get_rollout_by_id(rollout_id)).status == "requeuing"

        await soon(lost, what="the loss of the attempt")
        other = await store.dequeue_rollout(worker_id="another")
        assert other is not None
        (tmp_path / "go").touch()
        os.kill(stopped, signal.SIGCONT)

        async def heard() -> bool:
            rows = await store.get_active_workers()
            return any(row.stats.get("superseded") == 1 for row in rows)

        await soon(heard, what="the refusal")
        await store.update_attempt(
            rollout_id, other.attempt.attempt_id, status="succeeded", worker_id="another", reward=0.75
        )
    rollout = await store.get_rollout_by_id(rollout_id)
    assert (rollout.reward, rollout.num_attempts) == (0.75, 2)


async def test_the_end_of_the_block_finishes_what_is_in_hand_and_hands_back_what_takes_too_long(
    served, tmp_path: Path
) -> None:
    store, url = served
    quick = {"started": str(tmp_path / "quick"), "release": str(tmp_path / "go")}
    slow = {"started": str(tmp_path / "slow"), "release": str(tmp_path / "never")}
    async with pool(url, store, drain_seconds=1.5):
        ids = await enqueued(store, quick, slow)
        await number_in(tmp_path / "quick")
        pid = await number_in(tmp_path / "slow")
        (tmp_path / "go").touch()
    statuses = [(await store.get_rollout_by_id(each)).status for each in ids]
    assert statuses == ["succeeded", "requeuing"]
    await ended(pid, seconds=0.1)


async def test_an_error_of_the_block_ends_the_children_at_once_and_hands_back(served, tmp_path: Path) -> None:
    store, url = served
    task = {"started": str(tmp_path / "pid"), "release": str(tmp_path / "never")}
    ids = await enqueued(store, task)

    async def block() -> None:
        async with pool(url, store, drain_seconds=60.0):
            await number_in(tmp_path / "pid")
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await block()
    await ended(await number_in(tmp_path / "pid"), seconds=0.1)
    assert (await store.get_rollout_by_id(ids[0])).status == "requeuing"


async def test_sigterm_to_a_child_drains_it_and_the_pool_starts_another(served, tmp_path: Path) -> None:
    store, url = served
    task = {"started": str(tmp_path / "pid"), "release": str(tmp_path / "go")}
    async with pool(url, store) as running:
        ids = await enqueued(store, task)
        first = await number_in(tmp_path / "pid")
        os.kill(first, signal.SIGTERM)
        (tmp_path / "go").touch()
        (rollout,) = await done(store, ids)
        assert (rollout.status, rollout.num_attempts) == ("succeeded", 1)
        await ended(first)

        async def another() -> bool:
            return running.pids not in ([], [first])

        await soon(another, what="a new process")


async def test_a_crash_loop_stops_with_the_last_words_of_the_process(served) -> None:
    store, url = served
    await enqueued(store, *[{"say": "about to fall", "kill": "SIGSEGV"}] * 9)
    expected = r"runner process 1 died 2 times in a row .* by SIGSEGV: .*about to fall"
    with pytest.raises(RunStoppedError, match=expected):
        async with pool(url, store, max_crashes=2, max_concurrency=1):
            await asyncio.Event().wait()


async def test_crashes_between_attempts_that_end_are_no_loop(served) -> None:
    store, url = served
    good, bad = {"reward": 1.0}, {"kill": "SIGKILL"}
    async with pool(url, store, max_crashes=2, max_concurrency=1):
        ids = await enqueued(store, good, bad, good, bad, good, unresponsive_seconds=1.0)
        rollouts = await done(store, ids)
    assert [rollout.status for rollout in rollouts] == [
        "succeeded",
        "failed",
        "succeeded",
        "failed",
        "succeeded",
    ]


async def test_what_no_process_can_do_is_said_at_once(served, tmp_path: Path) -> None:
    store, url = served
    with pytest.raises(StoreChangedError, match="is another store now"):
        async with InMemoryLightningStore() as other, pool(url, other):
            await asyncio.Event().wait()
    file = tmp_path / "vanishing.py"
    file.write_text("import pathlib, os\nasync def agent(task): ...\n")
    from agl.agents.load import load_object

    agent = load_object(f"{file}:agent")
    file.unlink()
    with pytest.raises(ConfigError, match="there is no file"):
        async with pool(url, store, agent):
            await asyncio.Event().wait()


async def test_secrets_are_in_no_command_line_and_not_in_the_childrens_environment(
    served, tmp_path: Path, monkeypatch
) -> None:
    store, url = served
    monkeypatch.setenv("AGL_STORE_TOKEN", TOKEN)
    async with pool(url, store):
        await enqueued(store, {"started": str(tmp_path / "pid")})
        pid = await number_in(tmp_path / "pid")
        for name in ("cmdline", "environ"):
            assert TOKEN.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()


PARENT = """
import asyncio, sys
import process_agents
from agl.runners.processes import ProcessRunners
from agl.store.client import LightningStoreClient

async def main():
    url, token, agent = sys.argv[1:]
    async with LightningStoreClient(url, token=token) as store:
        runners = ProcessRunners(processes=2, max_concurrency=1, heartbeat_seconds=0.2)
        async with runners.running(
            store, getattr(process_agents, agent), store_url=url, store_token=token
        ):
            await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("agent", ["obedient", "blocking"])
async def test_the_death_of_the_parent_ends_children_and_what_their_agents_started(
    served, tmp_path: Path, agent: str
) -> None:
    store, url = served
    tasks = [
        {
            "started": str(tmp_path / f"{n}"),
            "program": str(tmp_path / f"program{n}"),
            "release": str(tmp_path / "never"),
        }
        for n in range(2)
    ]
    ids = await enqueued(store, *tasks)
    environment = {**os.environ, "PYTHONPATH": str(Path(process_agents.__file__).parent)}
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, url, TOKEN, agent, env=environment
    )
    try:
        pids = [await number_in(tmp_path / name) for name in ("0", "1", "program0", "program1")]
        assert set(pids[:2]) == set(children_of(parent.pid))
    finally:
        parent.kill()
    for pid in pids:
        await ended(pid, seconds=10)
    statuses = [(await store.get_rollout_by_id(each)).status for each in ids]
    assert statuses == ["requeuing", "requeuing"]
    await parent.wait()
