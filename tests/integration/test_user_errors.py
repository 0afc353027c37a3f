"""Mistakes and mishaps that need a server or a limit of the system: one line, exit code 1 or 2, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from forked_agl import run_agl
from recorded_folder import recorded_folder

from agl.store.server import StoreServer
from agl.store.sqlite import InMemoryLightningStore

TOKEN = "the-right-secret"
GRADER = ("--grader", "mine.py:grade")
AT_STORE: list[tuple[str, ...]] = [
    ("ls",),
    ("ls", "rollouts"),
    ("show", "one-0"),
    ("trace", "one-0"),
    ("logs", "one-0"),
    ("cancel", "one-0"),
    ("retry", "one-1"),
    ("replay", "one-0"),
    ("regrade", *GRADER),
    ("diff", "one-resources", "two-resources"),
    ("export", "what=rollouts", "--out", "out.jsonl"),
    ("import", "spans.jsonl"),
    ("eval", "+recipe=ppo_sql", "--resources", "base", "--run-dir", "runs/new"),
]
IDS = [" ".join(command[:2]) for command in AT_STORE]


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A working directory with the run ``one``, and a file of its records."""
    await recorded_folder(tmp_path, [0, 1, 2], waiting=1)
    (tmp_path / "spans.jsonl").write_text(
        '{"record": "run", "run_id": "r", "name": "n", "command": "train", "settings": {}, "status": "succeeded",'
        ' "created_at": 1.0}\n'
    )
    return tmp_path


@pytest.fixture
async def url() -> AsyncGenerator[str]:
    """Of an empty store that is served to those who know the token."""
    async with (
        InMemoryLightningStore() as store,
        StoreServer(store, port=0, token=TOKEN).serving() as served,
    ):
        yield served


def files_of(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


async def refusal(folder: Path, *arguments: str) -> str:
    """Run the command beside this test's servers; return its one line, all else being as it must be."""
    before = files_of(folder)
    done = await asyncio.to_thread(run_agl, arguments, folder)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr.startswith("agl: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert files_of(folder) == before
    return done.stderr.removeprefix("agl: ").rstrip("\n")


@pytest.mark.parametrize("command", AT_STORE, ids=IDS)
async def test_a_store_that_wants_another_token(
    folder: Path, url: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGL_STORE_TOKEN", raising=False)
    said = await refusal(folder, *command, "--store-url", url)
    assert said == f"{url} wants a token: set AGL_STORE_TOKEN, or store.token"
    monkeypatch.setenv("AGL_STORE_TOKEN", "another-secret")
    said = await refusal(folder, *command, "--store-url", url)
    assert said == f"{url} does not take the token: check AGL_STORE_TOKEN, or store.token"


@pytest.mark.parametrize("command", AT_STORE, ids=IDS)
async def test_a_store_that_is_away(folder: Path, command: tuple[str, ...]) -> None:
    said = await refusal(folder, *command, "--store-url", "http://127.0.0.1:9")
    assert said.startswith("no store answers at http://127.0.0.1:9 when asked once: ")
    assert said.endswith("Is it started (`agl store`), and the URL right?")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("export", "what=spans", "--out", "out.jsonl"), "out.jsonl cannot be written: File too large"),
        (
            ("import", "spans.jsonl", "--run-dir", "copy"),
            "cannot be opened as a store: disk I/O error: is the disk",
        ),
        (("init", "tickets"), "tickets cannot be made: File too large"),
        (
            ("regrade", *GRADER, "--write"),
            "store.sqlite cannot be opened as a store: disk I/O error: is the disk",
        ),
    ],
)
def test_a_disk_without_room(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    before = {path.relative_to(folder) for path in files_of(folder)}

    def have_little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    done = subprocess.run(
        [sys.executable, "-m", "agl", *arguments],
        cwd=folder,
        preexec_fn=have_little_room,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode in (1, 2), done.stdout) == (True, "")
    assert done.stderr.startswith("agl: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert message in done.stderr
    left = {path.relative_to(folder) for path in files_of(folder)} - before
    assert not [path for path in left if not path.name.endswith(("-wal", "-shm"))]


@pytest.mark.parametrize(
    "arguments", [("--version",), ("ls", "rollouts", "--json"), ("show", "one"), ("init", "-h")]
)
def test_output_that_cannot_be_written_is_no_success(folder: Path, arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "agl", *arguments],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "agl: No space left on device\n")
