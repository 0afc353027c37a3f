"""agl run and agl runner as people start them: what they print, how they end, and what they survive."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import process_agents
import pytest
from awaited import alive, children_of, ended, number_in, soon
from store_processes import served
from store_servers import lasting_port

from agl.store.client import LightningStoreClient
from agl.types import RolloutConfig, RolloutRequest

TOKEN = "secret-of-the-store-0123456789"
AGENT = f"agent.target={process_agents.__file__}:obedient"
WITH_TOKEN = {"AGL_STORE_TOKEN": TOKEN}
END_SECONDS = 5.0
"""A command that is told to stop ends within so long."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "agl", *arguments]


def agl(*arguments: str, folder: Path, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        command(*arguments),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout, done.stderr


@contextmanager
def runner(*arguments: str, folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Start ``agl runner``; it is killed if it still runs at the end of the block."""
    with subprocess.Popen(
        command("runner", AGENT, *arguments),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def end_of(process: subprocess.Popen[str], *, seconds: float = END_SECONDS) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error."""
    out, err = await asyncio.to_thread(process.communicate, timeout=seconds)
    return process.returncode, out, err


@asynccontextmanager
async def client(url: str, token: str | None = TOKEN) -> AsyncIterator[LightningStoreClient]:
    async with LightningStoreClient(url, token=token) as store:
        yield store


async def enqueued(store: LightningStoreClient, *tasks: dict[str, Any], **config: Any) -> list[str]:
    requests = [RolloutRequest(task=task, config=RolloutConfig(**config)) for task in tasks]
    return [rollout.rollout_id for rollout in await store.enqueue_many_rollouts(requests)]


def test_a_run_prints_a_line_for_each_task_and_a_summary(tmp_path: Path) -> None:
    tasks = ["--task", '{"reward": 0.5}', "--task", '{"reward": "none"}', "--task", '{"say": "hello"}']
    code, out, err = agl("run", AGENT, *tasks, folder=tmp_path)
    assert code == 0, err
    assert out.splitlines()[0] == "agl run: obedient on 3 val tasks"
    assert "hello" in out
    assert "3 tasks: 2 succeeded, 1 failed (ValueError 1), mean reward 0.75; 0 calls, 0 tokens" in out
    assert "could not convert string to float" in out
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_a_run_of_which_nothing_succeeds_fails_also_with_processes(tmp_path: Path) -> None:
    code, out, err = agl("run", AGENT, "--task", '{"reward": "none"}', "--processes", "2", folder=tmp_path)
    assert (code, err.strip().splitlines()[-1][:20]) == (1, "agl: the task failed")
    assert "1 task: 0 succeeded, 1 failed (ValueError 1)" in out


async def test_a_runner_joins_a_store_with_its_token_and_its_secret_is_nowhere_to_be_read(
    tmp_path: Path,
) -> None:
    with served("store=memory", folder=tmp_path, environment=WITH_TOKEN) as at:
        code, _, err = agl("runner", AGENT, "--store-url", at.url, folder=tmp_path, AGL_STORE_TOKEN="wrong")
        assert code == 1
        assert "token" in err
        arguments = ("--store-url", at.url, "--processes", "2", "--max-concurrency", "1")
        with runner(*arguments, folder=tmp_path, **WITH_TOKEN) as process:
            async with client(at.url) as store:
                tasks = [
                    {"started": str(tmp_path / str(n)), "release": str(tmp_path / "go")} for n in range(2)
                ]
                ids = await enqueued(store, *tasks)
                pids = [await number_in(tmp_path / str(n)) for n in range(2)]
                assert sorted(pids) == sorted(children_of(process.pid))
                for pid in (*pids, process.pid):
                    assert TOKEN.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
                (tmp_path / "go").touch()
                done = await store.wait_for_rollouts(ids, timeout_seconds=30)
                assert [rollout.reward for rollout in done] == [1.0, 1.0]
            process.send_signal(signal.SIGTERM)
            code, out, err = await end_of(process)
        assert code == 0, err
        assert out.splitlines()[0] == f"agl runner joined {at.url}"
        assert TOKEN not in out + err


@pytest.mark.parametrize("processes", [["runner=inline"], ["--processes", "2"]])
async def test_sigterm_lets_what_is_in_hand_finish_and_takes_nothing_new(
    tmp_path: Path, processes: list[str]
) -> None:
    with served("store=memory", folder=tmp_path) as at:
        async with client(at.url, None) as store:
            arguments = ["--store-url", at.url, "--max-concurrency", "1", *processes]
            with runner(*arguments, "runner.drain_seconds=60", folder=tmp_path) as process:
                task = {"started": str(tmp_path / "pid"), "release": str(tmp_path / "go")}
                (first,) = await enqueued(store, task)
                await number_in(tmp_path / "pid")
                process.send_signal(signal.SIGTERM)
                with pytest.raises(subprocess.TimeoutExpired):
                    await end_of(process, seconds=1.0)
                (tmp_path / "go").touch()
                code, _, err = await end_of(process)
            assert code == 0, err
            assert (await store.get_rollout_by_id(first)).status == "succeeded"
            (late,) = await enqueued(store, {})
            assert (await store.get_rollout_by_id(late)).status == "pending"


@pytest.mark.parametrize("processes", [["runner=inline"], [], ["--processes", "2"]])
@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]])
async def test_ctrl_c_and_a_second_signal_end_everything_at_once_and_hand_back(
    tmp_path: Path, processes: list[str], signals: list[signal.Signals]
) -> None:
    with served("store=memory", folder=tmp_path) as at:
        async with client(at.url, None) as store:
            arguments = ["--store-url", at.url, *processes]
            with runner(*arguments, "runner.drain_seconds=60", folder=tmp_path) as process:
                task = {"started": str(tmp_path / "pid"), "release": str(tmp_path / "never")}
                if processes != ["runner=inline"]:
                    task["program"] = str(tmp_path / "program")
                (rollout_id,) = await enqueued(store, task)
                pids = [await number_in(tmp_path / "pid"), *children_of(process.pid)]
                if "program" in task:
                    pids.append(await number_in(tmp_path / "program"))
                for number in signals:
                    process.send_signal(number)
                    await asyncio.sleep(0.3)  # two at one moment are one
                code, _, err = await end_of(process)
            assert (code, err.splitlines()[-1]) == (130, "agl: interrupted")
            assert "Traceback" not in err
            assert (await store.get_rollout_by_id(rollout_id)).status == "requeuing"
            assert [pid for pid in pids if alive(pid)] == []


async def test_a_store_that_is_killed_and_comes_back_finds_its_runners_again(tmp_path: Path) -> None:
    port = str(lasting_port(random.Random(5)))
    arguments = ["store.path=store.sqlite", "--port", port]
    with (
        served(*arguments, folder=tmp_path) as at,
        runner("--store-url", at.url, "--processes", "2", folder=tmp_path) as process,
    ):
        async with client(at.url, None) as store:
            task = {"started": str(tmp_path / "pid"), "release": str(tmp_path / "go")}
            ids = await enqueued(store, task)
            pid = await number_in(tmp_path / "pid")
            at.process.kill()
            at.process.wait()
            (tmp_path / "go").touch()
            with served(*arguments, folder=tmp_path) as again:
                assert again.url == at.url
                ids += await enqueued(store, {"reward": 2.0})
                done = await store.wait_for_rollouts(ids, timeout_seconds=60)
                assert [(one.reward, one.num_attempts) for one in done] == [(1.0, 1), (2.0, 1)]
                assert alive(pid)
                process.send_signal(signal.SIGTERM)
                code, _, err = await end_of(process)
                assert code == 0, err


@pytest.mark.parametrize("processes", [["runner=inline"], []])
async def test_another_store_at_the_url_ends_the_runner_with_what_it_found(
    tmp_path: Path, processes: list[str]
) -> None:
    port = str(lasting_port(random.Random(6)))
    with (
        served("store=memory", "--port", port, folder=tmp_path) as at,
        runner("--store-url", at.url, *processes, folder=tmp_path) as process,
    ):
        async with client(at.url, None) as store:

            async def joined() -> bool:
                return bool(await store.get_active_workers())

            await soon(joined, what="a runner that joined")
        at.process.kill()
        at.process.wait()
        with served("store=memory", "--port", port, folder=tmp_path):
            code, _, err = await end_of(process, seconds=60)
    assert code == 1
    assert "is another store now" in err.splitlines()[-1]


async def test_runners_come_and_go_and_no_rollout_is_lost(tmp_path: Path) -> None:
    with served("store=memory", folder=tmp_path) as at:
        async with client(at.url, None) as store:
            ids = await enqueued(store, *[{"release": str(tmp_path / "go")}] * 6)
            with runner("--store-url", at.url, "--max-concurrency", "2", folder=tmp_path) as first:

                async def busy() -> bool:
                    workers = await store.get_active_workers()
                    return sum(worker.status == "busy" for worker in workers) == 1

                await soon(busy, what="a busy runner")
                with runner("--store-url", at.url, "--max-concurrency", "2", folder=tmp_path) as second:

                    async def both() -> bool:
                        workers = await store.get_active_workers()
                        return sum(worker.status == "busy" for worker in workers) == 2

                    await soon(both, what="two runners")
                    first.send_signal(signal.SIGINT)
                    assert (await end_of(first))[0] == 130
                    (tmp_path / "go").touch()
                    done = await store.wait_for_rollouts(ids, timeout_seconds=60)
                    assert [rollout.status for rollout in done] == ["succeeded"] * 6
                    second.send_signal(signal.SIGTERM)
                    assert (await end_of(second))[0] == 0


async def test_runners_that_die_with_their_agents_end_the_command_with_the_cause(tmp_path: Path) -> None:
    with served("store=memory", folder=tmp_path) as at:
        async with client(at.url, None) as store:
            await enqueued(store, *[{"kill": "SIGSEGV"}] * 20)
            arguments = ["--store-url", at.url, "--processes", "1", "--max-concurrency", "1"]
            with runner(*arguments, "runner.max_crashes=2", folder=tmp_path) as process:
                code, _, err = await end_of(process, seconds=60)
            assert code == 1
            assert "died 2 times in a row" in err.splitlines()[-1]
            await ended(process.pid)
