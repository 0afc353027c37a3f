"""One script on several machines: each process plays the part that its environment says, through deaths and cuts."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import light_run
import pytest
from awaited import soon
from cut_link import link_to
from store_processes import StoreProcess, served

from agl.evaluation.rollouts import ABANDONED
from agl.store.sqlite import SqliteLightningStore
from agl.types import AttemptQuery, Rollout, RolloutQuery, WorkerQuery

TOKEN = "secret-of-the-store-0123456789"


@contextmanager
def script(
    folder: Path, *arguments: object, role: str = "", url: str = "", token: str = TOKEN
) -> Iterator[subprocess.Popen[str]]:
    """The script as a process, killed if it still runs at the end of the block."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(light_run.__file__).parent),
        "AGL_CURRENT_ROLE": role,
        "AGL_STORE_URL": url,
        "AGL_STORE_TOKEN": token if url else "",
    }
    with subprocess.Popen(
        [sys.executable, light_run.__file__, str(folder), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in environment.items() if value},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def store(folder: Path, *, port: int = 0) -> Iterator[StoreProcess]:
    arguments = (f"store.path={folder / 'store.sqlite'}", "--port", str(port))
    with served(*arguments, folder=folder, environment={"AGL_STORE_TOKEN": TOKEN}) as process:
        yield process


def executed(folder: Path) -> list[tuple[str, str, int]]:
    """Each execution that came to its end: rollout, attempt, process."""
    file = folder / "executed"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(rollout, attempt, int(pid)) for rollout, attempt, pid in map(str.split, lines)]


async def executions(folder: Path, number: int) -> None:
    async def look() -> bool:
        return len(executed(folder)) >= number

    await soon(look, what=f"{number} executions", seconds=60)


async def end_of(process: subprocess.Popen[str], *, seconds: float = 90) -> tuple[str, str]:
    out, err = await asyncio.to_thread(process.communicate, timeout=seconds)
    assert process.returncode == 0, (out, err)
    return out, err


async def rollouts_in(file: Path) -> list[Rollout]:
    async with SqliteLightningStore(str(file)) as records:
        return (await records.query_rollouts(RolloutQuery(limit=1000))).items


def check_whole(rollouts: list[Rollout], *, rounds: int, tasks: int) -> None:
    """Every rollout that was asked for is there once, and has ended well."""
    expected = [f"{light_run.RUN_ID}-{number}-{place}" for number in range(rounds) for place in range(tasks)]
    assert sorted(rollout.rollout_id for rollout in rollouts) == sorted(expected)
    assert Counter(rollout.status for rollout in rollouts) == {"succeeded": rounds * tasks}
    assert {rollout.reward for rollout in rollouts} == {1.0}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_an_algorithm_and_two_runners_of_the_same_script_meet_at_a_store(tmp_path: Path) -> None:
    with (
        store(tmp_path) as records,
        script(tmp_path, 2, 8, 0.2, role="runner", url=records.url) as first,
        script(tmp_path, 2, 8, 0.2, role="runner", url=records.url) as second,
        script(tmp_path, 2, 8, 0.2, role="algorithm", url=records.url) as algorithm,
    ):
        out, _ = await end_of(algorithm)
        assert "16 enqueued = 16 succeeded + 0 failed + 0 cancelled" in out
        for runner in (first, second):
            out, err = await end_of(runner, seconds=15)
            assert out.endswith("the run light has ended: succeeded\nno outcome\n")
            assert "Traceback" not in err
        done = executed(tmp_path)
        assert {pid for _, _, pid in done} <= {first.pid, second.pid}
        assert len({rollout for rollout, _, _ in done}) == len(done) == 16
        records.process.send_signal(signal.SIGTERM)
        records.ended()
    check_whole(await rollouts_in(tmp_path / "store.sqlite"), rounds=2, tasks=8)


async def test_a_runner_without_the_url_of_a_store_is_refused(tmp_path: Path) -> None:
    with script(tmp_path, 1, 1, role="runner") as runner:
        _, err = await asyncio.to_thread(runner.communicate, timeout=60)
        assert "AGL_CURRENT_ROLE=runner: say where the run's store is: AGL_STORE_URL" in err
        assert runner.returncode != 0


async def test_an_algorithm_without_a_store_elsewhere_serves_its_own_for_runners(tmp_path: Path) -> None:
    with script(tmp_path, 1, 4, role="algorithm") as algorithm:
        assert algorithm.stdout is not None
        line = await asyncio.to_thread(_line_with, algorithm.stdout, "the store is served at")
        url = line.split("served at ")[1].split(";")[0]
        token_file = Path(line.split("its token is in ")[1].strip())
        token = token_file.read_text().strip()
        assert token not in line
        with script(tmp_path, 1, 4, role="runner", url=url, token=token) as runner:
            out, _ = await end_of(algorithm)
            assert "4 enqueued = 4 succeeded" in out
            runner.send_signal(signal.SIGINT)  # its store has gone with the algorithm
            await asyncio.to_thread(runner.communicate, timeout=15)
    assert not token_file.exists()
    check_whole(await rollouts_in(tmp_path / "light" / "store.sqlite"), rounds=1, tasks=4)


def _line_with(stream: object, words: str) -> str:
    for line in stream:  # type: ignore[attr-defined]
        if words in line:
            return line
    raise AssertionError(f"it ended without saying {words!r}")


@pytest.mark.parametrize("roles", [("both",), ("algorithm", "runner")])
async def test_a_store_that_is_killed_and_started_again_costs_no_rollout(
    tmp_path: Path, roles: tuple[str, ...]
) -> None:
    port = free_port()
    with ExitStack() as stack:
        records = stack.enter_context(store(tmp_path, port=port))
        parts = [
            stack.enter_context(script(tmp_path, 3, 12, 0.3, role=role, url=records.url)) for role in roles
        ]
        await executions(tmp_path, 5)
        records.process.kill()
        records.process.wait()
        await asyncio.sleep(1.0)  # for calls that fail, and waits that begin
        again = stack.enter_context(store(tmp_path, port=port))
        out, err = await end_of(parts[0])
        assert "36 enqueued = 36 succeeded + 0 failed + 0 cancelled" in out
        assert "waiting for the store" in out + err
        for runner in parts[1:]:
            await end_of(runner, seconds=15)
        again.process.send_signal(signal.SIGTERM)
        again.ended()
    check_whole(await rollouts_in(tmp_path / "store.sqlite"), rounds=3, tasks=12)


async def test_a_network_that_is_cut_for_a_while_costs_no_rollout(tmp_path: Path) -> None:
    with store(tmp_path) as records:
        async with link_to(records.url) as near, link_to(records.url) as far:
            with (
                script(tmp_path, 3, 12, 0.3, role="algorithm", url=near.url) as algorithm,
                script(tmp_path, 3, 12, 0.3, role="runner", url=far.url) as runner,
            ):
                await executions(tmp_path, 5)
                for link in (far, near):
                    await link.cut()
                    await asyncio.sleep(1.5)
                    await link.mend()
                out, _ = await end_of(algorithm)
                assert "36 enqueued = 36 succeeded + 0 failed + 0 cancelled" in out
                await end_of(runner, seconds=15)
        records.process.send_signal(signal.SIGTERM)
        records.ended()
    check_whole(await rollouts_in(tmp_path / "store.sqlite"), rounds=3, tasks=12)


async def test_a_killed_algorithm_is_resumed_and_what_its_runner_did_meanwhile_is_done_again(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        records = stack.enter_context(store(tmp_path))
        runner = stack.enter_context(script(tmp_path, 3, 8, 0.3, role="runner", url=records.url))
        algorithm = stack.enter_context(script(tmp_path, 3, 8, 0.3, role="algorithm", url=records.url))
        await executions(tmp_path, 10)
        algorithm.kill()
        algorithm.wait()
        again = stack.enter_context(script(tmp_path, 3, 8, 0.3, role="algorithm", url=records.url))
        out, _ = await end_of(again)
        assert "24 enqueued = 24 succeeded + 0 failed + 0 cancelled" in out
        await end_of(runner, seconds=15)
        records.process.send_signal(signal.SIGTERM)
        records.ended()
    async with SqliteLightningStore(str(tmp_path / "store.sqlite")) as store_again:
        rollouts = (await store_again.query_rollouts(RolloutQuery(limit=1000))).items
        good = [rollout for rollout in rollouts if ABANDONED not in rollout.metadata]
        assert Counter(rollout.status for rollout in good) == {"succeeded": 24}
        assert len({rollout.rollout_id.removesuffix("-again") for rollout in good}) == 24
        (worker,) = (await store_again.query_workers(WorkerQuery())).items
        assert worker.pid == runner.pid


async def test_the_attempts_of_a_killed_runner_are_found_by_its_silence_and_executed_by_another(
    tmp_path: Path,
) -> None:
    with (
        store(tmp_path) as records,
        script(tmp_path, 2, 12, 0.3, role="algorithm", url=records.url) as algorithm,
        script(tmp_path, 2, 12, 0.3, role="runner", url=records.url) as killed,
    ):
        await executions(tmp_path, 5)
        killed.kill()
        with script(tmp_path, 2, 12, 0.3, role="runner", url=records.url) as other:
            out, _ = await end_of(algorithm)
            assert "24 enqueued = 24 succeeded + 0 failed + 0 cancelled" in out
            await end_of(other, seconds=15)
        records.process.send_signal(signal.SIGTERM)
        records.ended()
    check_whole(await rollouts_in(tmp_path / "store.sqlite"), rounds=2, tasks=12)
    async with SqliteLightningStore(str(tmp_path / "store.sqlite")) as store_again:
        attempts = (await store_again.query_attempts(AttemptQuery())).items
    lost = Counter(attempt.status for attempt in attempts)
    assert lost == {"succeeded": 24, "unresponsive": lost["unresponsive"]}
    assert 1 <= lost["unresponsive"] <= 4  # what it had in hand


@pytest.mark.parametrize("roles", [("both",), ("algorithm", "runner")])
async def test_ctrl_c_while_the_store_is_away_ends_every_role_within_five_seconds(
    tmp_path: Path, roles: tuple[str, ...]
) -> None:
    with ExitStack() as stack:
        records = stack.enter_context(store(tmp_path))
        parts = [
            stack.enter_context(script(tmp_path, 9, 12, 0.3, role=role, url=records.url)) for role in roles
        ]
        await executions(tmp_path, 3)
        records.process.kill()
        records.process.wait()
        await asyncio.sleep(1.0)  # for waits that begin
        for part in parts:
            part.send_signal(signal.SIGINT)
        for part in parts:
            await asyncio.to_thread(part.communicate, timeout=5)
            assert part.returncode in (-signal.SIGINT, 130)
