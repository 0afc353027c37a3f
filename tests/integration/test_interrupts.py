"""Ctrl-C at random moments of each command: it ends in time, leaves nothing running, and what it did can go on.

At each change ``NUMBER`` moments a command, 20 with ``AGL_NIGHTLY=1``. The signal goes to the whole process group, as
from a terminal.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import process_agents
from exact_run import WEIGHTS, calm_recipe, recipe
from interruptions import series
from nightly import NIGHTLY
from proxy_processes import scripted_upstream, served_proxy
from store_processes import agl_store, served
from store_servers import lasting_port
from train_processes import SMALL, finished, metrics_of, resume_train, start_train

from agl.store.client import LightningStoreClient
from agl.types import ProxyLLM, RolloutConfig, RolloutRequest

AGL = (sys.executable, "-m", "agl")
NUMBER = 20 if NIGHTLY else 4
ITERATIONS = 4 * NUMBER
"""More than a run gets done in the time between its interruptions."""
AGENT = f"agent.target={process_agents.__file__}:obedient"


@contextmanager
def repeated(call: Callable[[httpx.Client, int], Any]) -> Iterator[list[int]]:
    """Call again and again in a thread; yields the numbers of the calls that were answered well."""
    answered: list[int] = []
    over = threading.Event()

    def work() -> None:
        number = 0
        with httpx.Client(timeout=2.0, trust_env=False) as client:
            while not over.wait(0.01):
                number += 1
                try:
                    call(client, number)
                except (httpx.HTTPError, json.JSONDecodeError):
                    continue
                answered.append(number)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield answered
    finally:
        over.set()
        thread.join()


@contextmanager
def running(*arguments: str, folder: Path) -> Iterator[None]:
    """Let the command run while the block lasts."""
    with subprocess.Popen([*AGL, *arguments], cwd=folder, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def begun_or_resumed(*arguments: str, folder: Path) -> list[str]:
    """What starts the run, or goes on with it where it has begun."""
    if (folder / "run" / "settings.yaml").exists():
        return ["train", "--resume", "run"]
    return ["train", "--run-dir", "run", *arguments]


def check_exact(tmp_path: Path, *arguments: str, seed: int, until: float) -> None:
    """Interrupt the exact run, go on to its end, and compare with the run that nobody interrupted."""
    more = [f"algorithm.iterations={ITERATIONS}", "algorithm.tasks_per_iteration=3", "algorithm.group_size=2"]
    whole = tmp_path / "whole" / "run"
    code, _, err = finished(
        start_train(whole, *calm_recipe(tmp_path / "calm", tmp_path / "calm.journal"), *more)
    )
    assert (code, err) == (0, "")
    given = recipe(tmp_path / "configs", tmp_path / "journal", seconds=0.3)
    series(
        lambda: begun_or_resumed(*given, *more, *arguments, folder=tmp_path),
        folder=tmp_path,
        seed=seed,
        number=NUMBER,
        until=until,
    )
    run_dir = tmp_path / "run"
    assert (run_dir / "settings.yaml").exists(), "every Ctrl-C came before the run had begun"
    code, _, err = finished(resume_train(run_dir))
    assert code == 0, err
    assert metrics_of(run_dir) == metrics_of(whole)
    assert (run_dir / "policy" / WEIGHTS).read_text() == (whole / "policy" / WEIGHTS).read_text()


def test_training_with_runners_inside(tmp_path: Path) -> None:
    check_exact(tmp_path, seed=1, until=4.0)


def test_training_with_runners_in_processes(tmp_path: Path) -> None:
    check_exact(tmp_path, "runner=processes", "runner.processes=2", seed=2, until=5.0)


def test_training_with_torch(tmp_path: Path) -> None:
    """While it loads, samples, learns and saves."""
    series(
        lambda: begun_or_resumed(*SMALL, folder=tmp_path),
        folder=tmp_path,
        seed=3,
        number=NUMBER if NIGHTLY else 2,
        until=12.0 if NIGHTLY else 8.0,
        environment={"OMP_NUM_THREADS": "1"},
    )
    run_dir = tmp_path / "run"
    begun = (run_dir / "settings.yaml").exists()
    process = resume_train(run_dir) if begun else start_train(run_dir, *SMALL)
    code, _, err = finished(process)
    assert code == 0, err
    assert sorted(metrics_of(run_dir)) == [0, 1, 2, 3, 4]


async def test_a_store_that_is_written_to(tmp_path: Path) -> None:
    port = lasting_port(random.Random(4))
    arguments = ["store.path=s.sqlite", "--port", str(port)]

    def enqueue(client: httpx.Client, number: int) -> None:
        body = {"task": number, "rollout_id": f"r{number}"}
        client.post(f"http://127.0.0.1:{port}/v1/rollouts", json=body).raise_for_status()

    with repeated(enqueue) as acknowledged:
        series(lambda: ["store", *arguments], folder=tmp_path, seed=4, number=NUMBER, until=2.0)
    with served(*arguments, folder=tmp_path) as at:
        async with LightningStoreClient(at.url) as store:
            assert (await store.statistics())["rollouts"]["pending"] >= len(acknowledged)
            for number in acknowledged:
                assert (await store.get_rollout_by_id(f"r{number}")).task == number


async def test_a_pool_of_runners_at_work(tmp_path: Path) -> None:
    with served("store=memory", folder=tmp_path) as at:
        arguments = ["runner", AGENT, "--store-url", at.url, "--processes", "2", "--max-concurrency", "2"]
        async with LightningStoreClient(at.url) as store:
            config = RolloutConfig(max_attempts=99, unresponsive_seconds=2.0)
            requests = [
                RolloutRequest(task={"release": str(tmp_path / "go")}, config=config) for _ in range(6)
            ]
            ids = [rollout.rollout_id for rollout in await store.enqueue_many_rollouts(requests)]
            series(lambda: arguments, folder=tmp_path, seed=5, number=NUMBER, until=4.0)
            (tmp_path / "go").touch()
            with running(*arguments, folder=tmp_path):
                done = await store.wait_for_rollouts(ids, timeout_seconds=60)
            assert [rollout.status for rollout in done] == ["succeeded"] * 6


def test_a_proxy_that_is_called(tmp_path: Path) -> None:
    port = lasting_port(random.Random(6))
    with served("store=memory", folder=tmp_path) as store, scripted_upstream() as upstream:
        endpoint = f"proxy.endpoints={{gpu: {{model: m, urls: ['{upstream.url}']}}}}"
        arguments = ["--store-url", store.url, endpoint, "--port", str(port)]
        httpx.post(f"{store.url}/v1/rollouts", json={"task": 1}).raise_for_status()
        held = httpx.post(f"{store.url}/v1/rollouts/dequeue", json={"worker_id": "w"}).json()
        ids = {name: held["attempt"][name] for name in ("rollout_id", "attempt_id")}
        llm = ProxyLLM(base_url=f"http://127.0.0.1:{port}", model="m").for_attempt(**ids)

        def ask(client: httpx.Client, number: int) -> None:
            body = {"model": "m", "messages": [{"role": "user", "content": f"call {number} is"}]}
            answer = client.post(f"{llm.base_url}/chat/completions", json=body).raise_for_status().json()
            assert answer["choices"][0]["message"]["content"].startswith(f"call {number} is")

        with repeated(ask) as answered:
            series(lambda: ["proxy", *arguments], folder=tmp_path, seed=6, number=NUMBER, until=3.0)
            with served_proxy(*arguments, folder=tmp_path):
                so_far = len(answered)
                while len(answered) < so_far + 2:
                    time.sleep(0.01)
        asked = {json.loads(text)[0]["content"] for text in recorded_questions(store.url, ids)}
        assert {f"call {number} is" for number in answered} <= asked


def recorded_questions(url: str, ids: dict[str, str]) -> list[str]:
    """What well answered calls asked, as the store has it."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        parameters = {**ids, "limit": 500, **({"cursor": cursor} if cursor else {})}
        page = httpx.get(f"{url}/v1/spans", params=parameters).raise_for_status().json()
        found += [
            span["attributes"]["gen_ai.input.messages"]
            for span in page["items"]
            if span["status"]["code"] == "ok"
        ]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def test_running_an_agent_on_some_tasks(tmp_path: Path) -> None:
    base = ["run", AGENT, "--processes", "2", "store=sqlite", "store.path=tried.sqlite"]
    task = json.dumps({"release": str(tmp_path / "go")})
    arguments = [*base, *(["--task", task] * 4)]
    series(lambda: arguments, folder=tmp_path, seed=7, number=NUMBER, until=4.0)
    (tmp_path / "go").touch()
    code, out, err = agl_store(*arguments[1:], folder=tmp_path, agl=[*AGL, "run"])
    assert code == 0, err
    assert "4 succeeded" in out
