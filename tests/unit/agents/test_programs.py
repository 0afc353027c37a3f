"""Programs run within a block, and their output is kept."""

import asyncio
import secrets
from pathlib import Path

import pytest

from agl.agents.programs import OutputPipe, guarded, inherited_environment, program


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def marked() -> tuple[str, dict[str, str]]:
    value = secrets.token_hex(8)
    return f"AGL_TEST_MARK={value}", {"PATH": "/usr/bin:/bin", "AGL_TEST_MARK": value}


async def run(script: str, pipe: OutputPipe) -> int:
    mark, environment = marked()
    async with program(
        ["bash", "-c", script], mark=mark, environment=environment, stdout=pipe.writing
    ) as process:
        pipe.started()
        return await process.wait()


async def test_output_is_kept_and_watched_to_the_last_byte() -> None:
    pieces: list[bytes] = []
    with OutputPipe(pieces.append) as pipe:
        assert await run("echo one; echo two; head -c 200000 /dev/zero; exit 3", pipe) == 3
    assert pipe.kept.num_bytes == 200_008
    assert b"".join(pieces)[:8] == b"one\ntwo\n"


async def test_a_pipe_that_a_process_holds_open_is_read_as_far_as_it_goes() -> None:
    with OutputPipe() as pipe:
        assert await run("(setsid sleep 1000 &); echo done", pipe) == 0
    assert pipe.kept.text() == "done\n"


async def test_a_program_that_is_stopped_may_tidy_up() -> None:
    up = asyncio.Event()
    with OutputPipe(lambda _: up.set()) as pipe:
        running = asyncio.create_task(
            run("trap 'echo tidy; exit 0' TERM; echo up; while :; do sleep 0.01; done", pipe)
        )
        await asyncio.wait_for(up.wait(), 20)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert pipe.kept.text() == "up\ntidy\n"


async def test_a_program_that_is_not_there_is_an_error_and_leaves_no_open_file() -> None:
    before = open_files()
    mark, environment = marked()
    with OutputPipe() as pipe, pytest.raises(FileNotFoundError):
        async with program(["/no/such/program"], mark=mark, environment=environment, stdout=pipe.writing):
            pass
    assert open_files() <= before


async def test_what_is_about_the_runner_is_not_inherited(monkeypatch) -> None:
    for name in ("AGL_STORE_TOKEN", "AGL_PROXY_TOKEN", "AGL_STORE_URL", "AGL_CURRENT_ROLE", "AGL_MINE"):
        monkeypatch.setenv(name, "x")
    assert {name for name in inherited_environment() if name.startswith("AGL_")} == {"AGL_MINE"}


async def test_marked_processes_end_with_the_guarded_block() -> None:
    async with guarded() as mark:
        left = await asyncio.create_subprocess_exec(
            "sleep", "1000", env={"PATH": "/usr/bin:/bin", "AGL_GUARD": mark}, start_new_session=True
        )
    assert await left.wait() == -9
