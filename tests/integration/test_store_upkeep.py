"""``agl store gc`` and ``agl store backup`` on a store that is being served, and on its file."""

from __future__ import annotations

import random
import re
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from store_processes import StoreProcess, agl_store, served

TOKEN = "a-token-of-some-length"
ADMIN = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    """A store behind a token, with a finished run of 20 rollouts and 2 MB of spans, and one that is running."""
    with served(folder=tmp_path, environment={"AGL_STORE_TOKEN": TOKEN}) as started:
        with httpx.Client(base_url=started.url, headers=ADMIN) as http:
            for run_id in ("done", "busy"):
                http.post("/v1/runs", json={"name": run_id, "run_id": run_id}).raise_for_status()
            for number in range(20):
                _finish_one(http, number)
            http.patch("/v1/runs/done", json={"status": "succeeded"}).raise_for_status()
            http.post("/v1/rollouts", json={"task": "more", "run_id": "busy"}).raise_for_status()
        yield started


def _finish_one(http: httpx.Client, number: int) -> None:
    claimed = http.post("/v1/rollouts?start=true&worker_id=w", json={"task": number, "run_id": "done"}).json()
    key = {"rollout_id": claimed["rollout_id"], "attempt_id": claimed["attempt"]["attempt_id"]}
    text = random.Random(number).randbytes(50_000).hex()
    span = {"span_id": f"{number + 1:016x}", "trace_id": "a" * 32, "name": "s", "start_time_ns": 1}
    http.post("/v1/spans", json={**span, **key, "attributes": {"text": text}}).raise_for_status()
    path = f"/v1/rollouts/{key['rollout_id']}/attempts/{key['attempt_id']}"
    http.patch(path, json={"status": "succeeded", "reward": 1.0}).raise_for_status()


def upkeep(store: StoreProcess, *arguments: str, folder: Path) -> tuple[int, str, str]:
    """Run the command on the served store; the token is in its environment."""
    environment = {"AGL_STORE_TOKEN": TOKEN}
    return agl_store(*arguments, "--store-url", store.url, folder=folder, environment=environment)


def statistics(store: StoreProcess) -> dict[str, object]:
    return httpx.get(f"{store.url}/v1/statistics", headers=ADMIN).json()


def test_a_run_of_a_served_store_goes_and_its_file_shrinks(store: StoreProcess, tmp_path: Path) -> None:
    dry = upkeep(store, "gc", "--run", "done", "--dry-run", folder=tmp_path)
    assert dry == (0, "run done: would delete 20 rollouts, 20 attempts, 20 spans\n", "")
    code, out, err = upkeep(store, "gc", "--run", "done", folder=tmp_path)
    assert (code, err) == (0, "")
    assert re.match(r"run done: deleted (?=.*20 rollouts)(?=.*20 spans)", out)
    store.process.send_signal(signal.SIGTERM)
    assert store.ended() == (0, "", "")
    assert (tmp_path / "store.sqlite").stat().st_size < 300_000


def test_a_running_run_is_left_alone(store: StoreProcess, tmp_path: Path) -> None:
    code, out, err = upkeep(store, "gc", "--run", "busy", folder=tmp_path)
    assert (code, out) == (1, "")
    assert err.startswith("agl: run busy has ")
    assert err.count("\n") == 1


def test_old_spans_of_a_served_store_go(store: StoreProcess, tmp_path: Path) -> None:
    code, out, _ = upkeep(store, "gc", "--older-than", "1h", folder=tmp_path)
    assert (code, re.search(r": deleted (\d+)\n", out)[1]) == (0, "0")  # type: ignore[index]
    code, out, _ = upkeep(store, "gc", "--older-than", "0s", folder=tmp_path)
    assert (code, re.search(r": deleted (\d+)\n", out)[1]) == (0, "20")  # type: ignore[index]
    before, now = map(float, re.findall(r"([\d.]+) MB", out))
    assert now < before / 3


def test_without_the_token_nothing_is_done(store: StoreProcess, tmp_path: Path) -> None:
    for arguments in (["gc", "--run", "done"], ["backup", "copy.sqlite"]):
        code, out, err = agl_store(*arguments, "--store-url", store.url, folder=tmp_path)
        assert (code, out, err.count("\n")) == (1, "", 1), err
        assert "token" in err
    assert not (tmp_path / "copy.sqlite").exists()


def test_a_backup_while_writers_write_is_a_store_of_one_moment(store: StoreProcess, tmp_path: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        with httpx.Client(base_url=store.url, headers=ADMIN) as http:
            while not stop.is_set():
                batch = [{"task": part, "run_id": "busy"} for part in range(10)]
                http.post("/v1/rollouts", json=batch).raise_for_status()

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        code, out, err = upkeep(store, "backup", "copy.sqlite", folder=tmp_path)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert (code, err) == (0, "")
    assert re.fullmatch(r"copy\.sqlite: [\d.]+ MB\n", out)
    assert [path.name for path in tmp_path.glob(".copy*")] == []
    with closing(sqlite3.connect(tmp_path / "copy.sqlite")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with served("store.path=copy.sqlite", "--read-only", folder=tmp_path) as copy:
        assert copy.lines[2] != store.lines[2]  # a store of its own
        pending = httpx.get(f"{copy.url}/v1/statistics").json()["rollouts"]["pending"]
        assert pending % 10 == 1  # batches are there whole, beside the one rollout of before
        assert len(httpx.get(f"{copy.url}/v1/spans").json()["items"]) == 20


def test_a_backup_overwrites_nothing(store: StoreProcess, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    code, out, err = upkeep(store, "backup", "mine", folder=tmp_path)
    assert (code, out) == (2, "")
    assert "mine is there already" in err
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_file_that_nobody_has_open_is_copied_and_cleaned_directly(
    store: StoreProcess, tmp_path: Path
) -> None:
    store.process.send_signal(signal.SIGTERM)
    store.ended()
    assert agl_store("backup", "copy.sqlite", folder=tmp_path)[0] == 0
    code, out, _ = agl_store("gc", "--run", "done", folder=tmp_path)
    assert code == 0
    before, now = map(float, re.findall(r"([\d.]+) MB", out.splitlines()[1]))
    assert now < 0.3 < before
    with served("store.path=copy.sqlite", "--read-only", folder=tmp_path) as copy:
        assert httpx.get(f"{copy.url}/v1/statistics").json()["spans"] == 20


def test_a_url_that_is_no_store_is_one_line(tmp_path: Path) -> None:
    for arguments in (["gc", "--run", "x"], ["backup", "copy"]):
        code, out, err = agl_store(*arguments, "--store-url", "http://127.0.0.1:9", folder=tmp_path)
        assert (code, out, err.count("\n")) == (1, "", 1), err
        assert "http://127.0.0.1:9" in err
    assert list(tmp_path.iterdir()) == []
