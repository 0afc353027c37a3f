"""One recipe in every mode of execution: the same rollouts, the same numbers, whoever runs the agents."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from awaited import alive, children_of
from mongo_server import mongo_server
from store_processes import served
from train_processes import SMALL, finished, metrics_of, resume_train, start_train, wait_for_iteration

from agl.store.client import LightningStoreClient
from agl.store.mongo import MongoLightningStore
from agl.store.paging import iter_rollouts
from agl.store.sqlite import SqliteLightningStore
from agl.types import RolloutQuery

PROCESSES = ["runner=processes", "runner.processes=2"]
TOKEN = "secret-of-the-store-0123456789"


@contextmanager
def runner(url: str, *arguments: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """An ``agl runner`` that has joined the store, killed if it still runs at the end of the block."""
    command = [sys.executable, "-m", "agl", "runner", "+recipe=ppo_sql", "--store-url", url, *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
    ) as process:
        try:
            assert process.stdout is not None
            assert "joined" in process.stdout.readline()
            yield process
        finally:
            process.kill()


async def accounts(store: Any, run_id: str) -> dict[str, tuple[str, float | None, str]]:
    """What became of each rollout, by the part of its id that no run has for itself."""
    async with store:
        rollouts = iter_rollouts(store, RolloutQuery(run_id=run_id))
        return {
            rollout.rollout_id.removeprefix(run_id): (rollout.status, rollout.reward, rollout.mode)
            async for rollout in rollouts
        }


def check_same(run_dir: Path, whole: Path) -> None:
    """The same numbers in every iteration; what the machine's load decides is left out by ``metrics_of``."""
    expected, found = metrics_of(whole), metrics_of(run_dir)
    assert sorted(found) == sorted(expected) == [0, 1, 2, 3, 4]
    for iteration, numbers in expected.items():
        assert found[iteration] == pytest.approx(numbers, rel=1e-3, abs=1e-4), iteration


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in one process."""
    run_dir = tmp_path_factory.mktemp("runs") / "inline"
    code, _, err = finished(start_train(run_dir, *SMALL))
    assert (code, err) == (0, "")
    return run_dir


def test_the_curve_of_the_seeded_recipe_does_not_fall(inline: Path) -> None:
    numbers = metrics_of(inline)
    assert numbers[4]["val/reward"] >= numbers[0]["val/reward"]
    assert numbers[4]["total/rollouts/enqueued"] == numbers[4]["total/rollouts/succeeded"] == 4 * 4 * 2


async def test_runners_in_two_processes_give_the_same_run(inline: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "processes"
    code, out, err = finished(start_train(run_dir, *SMALL, *PROCESSES))
    assert (code, err) == (0, "")
    assert "the store is served at http://127.0.0.1:" in out
    check_same(run_dir, inline)
    expected = await accounts(SqliteLightningStore(str(inline / "store.sqlite")), "inline")
    assert await accounts(SqliteLightningStore(str(run_dir / "store.sqlite")), "processes") == expected


async def test_store_runners_and_training_as_commands_of_their_own_give_the_same_run(
    inline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGL_STORE_TOKEN", TOKEN)
    run_dir = tmp_path / "commands"
    with ExitStack() as stack:
        store = stack.enter_context(served("store.path=s.sqlite", folder=tmp_path))
        first = stack.enter_context(runner(store.url, folder=tmp_path))
        second = stack.enter_context(runner(store.url, "--processes", "1", folder=tmp_path))
        code, out, err = finished(start_train(run_dir, *SMALL, "runner=remote", "--store-url", store.url))
        assert (code, err) == (0, "")
        assert "Held-out reward (95% interval)" in out
        client = LightningStoreClient(store.url, token=TOKEN)
        found = await accounts(client, "commands")
        for process in (first, second):
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=15) == 0
    check_same(run_dir, inline)
    assert found == await accounts(SqliteLightningStore(str(inline / "store.sqlite")), "inline")
    for path in run_dir.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path


async def test_records_in_mongodb_give_the_same_iteration(inline: Path, tmp_path: Path) -> None:
    """One, as the tests' server syncs every write. Its runners are processes: the command serves them the records."""
    mongo = mongo_server()
    mongo.clear()
    run_dir = tmp_path / "mongo"
    store = ["store=mongo", f"store.url='{mongo.url}'", "store.journal=false"]
    short = ["algorithm.iterations=1", "data.num_val=2"]
    code, _, err = finished(start_train(run_dir, *SMALL, *short, *store, *PROCESSES))
    assert (code, err) == (0, "")
    found = await accounts(MongoLightningStore(mongo.url, journal=False), "mongo")
    expected = await accounts(SqliteLightningStore(str(inline / "store.sqlite")), "inline")
    sampled = {
        name: account for name, account in expected.items() if name.startswith(("-preflight-", "-i1-"))
    }
    assert len(sampled) == 4 + 8
    assert sampled.items() <= found.items()
    assert metrics_of(run_dir)[1]["train/reward"] == metrics_of(inline)[1]["train/reward"]


def test_a_killed_run_in_processes_leaves_none_and_resumes_to_the_same_numbers(
    inline: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "killed"
    process = start_train(run_dir, *SMALL, *PROCESSES)
    wait_for_iteration(run_dir, 1)
    children = children_of(process.pid)
    assert len(children) >= 2
    process.send_signal(signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 15
    while any(map(alive, children)):
        assert time.monotonic() < deadline, "children outlive the command"
        os.sched_yield()
    code, _, err = finished(resume_train(run_dir))
    assert (code, err) == (0, "")
    check_same(run_dir, inline)


def test_ctrl_c_ends_the_runner_processes_too_within_five_seconds_and_the_run_goes_on(
    inline: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "stopped"
    process = start_train(run_dir, *SMALL, *PROCESSES)
    wait_for_iteration(run_dir, 2)
    children = children_of(process.pid)
    process.send_signal(signal.SIGINT)
    code, _, err = finished(process, timeout=5)
    assert (code, err) == (130, f"agl: interrupted (go on with: agl train --resume {run_dir})\n")
    assert not any(map(alive, children))
    code, _, err = finished(resume_train(run_dir))
    assert (code, err) == (0, "")
    check_same(run_dir, inline)
