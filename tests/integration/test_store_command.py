"""``agl store`` as a process of its own: what it says, whom it lets in, what it refuses, and how it ends."""

from __future__ import annotations

import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from mongo_server import mongo_server
from store_processes import StoreProcess, agl_store, served

TOKEN = "a-token-of-some-length"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    with served(folder=tmp_path) as started:
        yield started


def enqueued(url: str, *tasks: int) -> list[str]:
    answer = httpx.post(f"{url}/v1/rollouts", json=[{"task": task, "run_id": "r"} for task in tasks])
    assert answer.status_code == 200, answer.text
    return [rollout["rollout_id"] for rollout in answer.json()]


def refused(
    code: int, reason: str, *arguments: str, folder: Path, environment: dict[str, str] | None = None
) -> None:
    """Check that the command ends with one line that gives the reason."""
    ended, out, err = agl_store(*arguments, folder=folder, environment=environment)
    assert (ended, out) == (code, ""), err
    assert err.startswith("agl: ")
    assert err.count("\n") == 1, err
    assert re.search(reason, err), err


def test_it_says_where_it_serves_what_and_how_to_connect(store: StoreProcess, tmp_path: Path) -> None:
    health = httpx.get(f"{store.url}/v1/health").json()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", store.url)
    assert list(store.lines) == [
        f"agl store serves {store.url}",
        f"  records  {tmp_path}/store.sqlite",
        f"  identity {health['identity']}",
        "  token    none: only this machine can connect",
        f"  docs     {store.url}/docs",
        f'  connect  agl.LightningStoreClient("{store.url}")',
    ]
    assert httpx.get(f"{store.url}/docs").status_code == 200
    assert httpx.get(f"{store.url}/metrics").status_code == 200


def test_the_records_are_there_when_it_starts_again(tmp_path: Path) -> None:
    with served("store.path=deep/down/s.sqlite", folder=tmp_path) as first:
        (rollout_id,) = enqueued(first.url, 7)
        first.process.send_signal(signal.SIGTERM)
        assert first.ended() == (0, "", "")
    with served("store.path=deep/down/s.sqlite", folder=tmp_path) as second:
        assert httpx.get(f"{second.url}/v1/rollouts/{rollout_id}").json()["task"] == 7
        assert first.lines[2] == second.lines[2]


def test_memory_leaves_no_file(tmp_path: Path) -> None:
    with served("store=memory", folder=tmp_path) as started:
        enqueued(started.url, 1)
        assert started.lines[1] == "  records  memory"
    assert list(tmp_path.iterdir()) == []


def test_a_token_of_the_environment_is_asked_for_and_not_shown(tmp_path: Path) -> None:
    with served(folder=tmp_path, environment={"AGL_STORE_TOKEN": TOKEN}) as started:
        assert httpx.get(f"{started.url}/v1/runs").status_code == 401
        headers = {"authorization": f"Bearer {TOKEN}"}
        assert httpx.get(f"{started.url}/v1/runs", headers=headers).status_code == 200
        assert started.lines[3] == "  token    set (...ngth)"
        started.process.send_signal(signal.SIGTERM)
        assert TOKEN not in "".join([*started.lines, *map(str, started.ended())])


def test_another_address_is_served_with_a_token(tmp_path: Path) -> None:
    with served("--host", "0.0.0.0", "--token", TOKEN, folder=tmp_path) as started:
        port = port_of(started.url)
        assert httpx.get(f"http://127.0.0.1:{port}/v1/runs").status_code == 401
        headers = {"authorization": f"Bearer {TOKEN}"}
        assert httpx.get(f"http://127.0.0.1:{port}/v1/runs", headers=headers).status_code == 200


def test_read_only_answers_and_changes_nothing(tmp_path: Path) -> None:
    with served(folder=tmp_path) as started:
        (rollout_id,) = enqueued(started.url, 1)
        started.process.send_signal(signal.SIGTERM)
        started.ended()
    with served("--read-only", folder=tmp_path) as started:
        assert started.lines[0].endswith(" (read-only)")
        assert httpx.get(f"{started.url}/v1/rollouts/{rollout_id}").json()["status"] == "pending"
        answer = httpx.post(f"{started.url}/v1/rollouts", json={"task": 2})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


def test_read_only_reads_beside_the_process_that_writes(store: StoreProcess, tmp_path: Path) -> None:
    with served("--read-only", folder=tmp_path) as reader:
        assert reader.lines[1:3] == store.lines[1:3]
        (rollout_id,) = enqueued(store.url, 1)
        assert httpx.get(f"{reader.url}/v1/rollouts/{rollout_id}").json()["task"] == 1
        reader.process.send_signal(signal.SIGTERM)
        assert reader.ended() == (0, "", "")


def test_read_only_makes_no_file(tmp_path: Path) -> None:
    refused(1, "there is no store at", "--read-only", "--port", "0", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_named_and_no_file_is_made(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
        refused(2, f"127.0.0.1:{port}", "--port", str(port), folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_served_says_by_whom_and_where(store: StoreProcess, tmp_path: Path) -> None:
    for arguments in (["--port", "0"], ["gc", "--older-than", "1d"], ["backup", "copy"]):
        refused(1, f"process {store.process.pid}.*{store.url}", *arguments, folder=tmp_path)


def test_files_of_others_are_refused_as_they_are(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("these are my notes, and a good deal longer than a header\n" * 50)
    refused(1, r"notes\.txt .*(database|store)", "store.path=notes.txt", "--port", "0", folder=tmp_path)
    assert text.read_text().startswith("these are my notes")
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as db:
        db.execute("CREATE TABLE t (x)")
    refused(1, "of another program", "store.path=other.sqlite", "--port", "0", folder=tmp_path)
    refused(1, "is a folder", f"store.path={tmp_path}", "--port", "0", folder=tmp_path)


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with served(folder=tmp_path) as started:
        started.process.send_signal(signal.SIGTERM)
        started.ended()
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as db:
        db.execute("PRAGMA user_version = 999")
    refused(1, "schema version 999.*newer agl", "--port", "0", folder=tmp_path)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    refused(1, "/sys/store.sqlite", "store.path=/sys/store.sqlite", "--port", "0", folder=tmp_path)
    (tmp_path / "file").touch()
    refused(1, "file/store.sqlite", "store.path=file/store.sqlite", "--port", "0", folder=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0.*token"),
        (["--host", "no.such.host.invalid", "--token", TOKEN], "no.such.host.invalid"),
        (["--port", "70000"], "70000"),
        (["prot=1"], "did you mean port"),
        (["store=mongo"], "no value for store.url; give store.url="),
        (["store=mongo", "store.url=nonsense"], "store.url"),
    ],
)
def test_a_wrong_setting_is_refused(tmp_path: Path, arguments: list[str], reason: str) -> None:
    refused(2, reason, *arguments, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_token_is_refused_rather_than_none(tmp_path: Path) -> None:
    refused(2, "token", folder=tmp_path, environment={"AGL_STORE_TOKEN": ""})


def test_mongo_without_its_extra_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['pymongo'] = None; from agl.cli.app import main; main()"
    arguments = ["store", "store=mongo", "store.url=mongodb://127.0.0.1:1"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert 'pip install "agl[mongo]"' in done.stderr


def test_two_processes_serve_one_mongo_database(tmp_path: Path) -> None:
    settings = [
        "store=mongo",
        f"store.url={mongo_server().url}",
        "store.prefix=command_",
        "store.journal=false",
    ]
    with served(*settings, folder=tmp_path) as one, served(*settings, folder=tmp_path) as other:
        assert one.lines[1:3] == other.lines[1:3]
        assert "mongodb://" in one.lines[1]
        (rollout_id,) = enqueued(one.url, 3)
        assert httpx.get(f"{other.url}/v1/rollouts/{rollout_id}").json()["task"] == 3
        code, out, err = agl_store("backup", "copy", "--store-url", one.url, folder=tmp_path)
        assert (code, out, err.count("\n")) == (1, "", 1), err
        for started in (one, other):
            started.process.send_signal(signal.SIGTERM)
            assert started.ended() == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_a_mongo_that_does_not_answer_is_named(tmp_path: Path) -> None:
    url = "mongodb://someone:secret@127.0.0.1:1"
    settings = ["store=mongo", f"store.url={url}", "store.timeout_seconds=1"]
    code, out, err = agl_store(*settings, "--port", "0", folder=tmp_path)
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert "127.0.0.1:1" in err
    assert "secret" not in err


@pytest.mark.parametrize(
    ("number", "code", "words"), [(signal.SIGTERM, 0, ""), (signal.SIGINT, 130, "agl: interrupted\n")]
)
def test_a_signal_lets_those_who_wait_go_and_closes_the_store(
    tmp_path: Path, number: signal.Signals, code: int, words: str
) -> None:
    answers: list[httpx.Response] = []
    with served(folder=tmp_path) as started:
        (rollout_id,) = enqueued(started.url, 1)

        def wait() -> None:
            body = {"rollout_ids": [rollout_id], "timeout_seconds": 30}
            answers.append(httpx.post(f"{started.url}/v1/rollouts/wait", json=body, timeout=60))

        waiting = threading.Thread(target=wait)
        waiting.start()
        while "agl_store_long_polls 1.0" not in httpx.get(f"{started.url}/metrics").text:
            assert waiting.is_alive()
        started.process.send_signal(number)
        assert started.ended(timeout=5.0) == (code, "", words)
        waiting.join(timeout=5)
    assert [(answer.status_code, answer.json()) for answer in answers] == [(200, {"items": []})]
    assert not (tmp_path / "store.sqlite-wal").exists()


@contextmanager
def stuck_client(url: str) -> Generator[None]:
    """A client that never sends the rest of its request."""
    with socket.create_connection(("127.0.0.1", port_of(url))) as stuck:
        stuck.sendall(b"POST /v1/rollouts HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n{")
        httpx.get(f"{url}/v1/health")
        yield


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with served("grace_seconds=4", folder=tmp_path) as started, stuck_client(started.url):
        started.process.send_signal(signal.SIGTERM)
        while _listens(started.url):
            pass
        started.process.send_signal(signal.SIGINT)
        assert started.ended(timeout=5) == (-signal.SIGINT, "", "")


def _listens(url: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port_of(url))).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_stuck_client_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    with served(folder=tmp_path) as started, stuck_client(started.url):
        started.process.send_signal(signal.SIGTERM)
        assert started.ended(timeout=5) == (0, "", "")
