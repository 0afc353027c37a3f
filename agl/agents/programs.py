"""Programs that agents start: run within an attempt, their output kept, and ended with all that they started."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Self

from agl.agents import process_tree
from agl.agents.threads import in_thread
from agl.tracing.kept import KeptBytes

log = logging.getLogger(__name__)

TERM_SECONDS = 1.0
"""How long a program that is stopped may take to tidy up. Below the time that a runner gives a stopped agent."""
GUARD_VARIABLE = "AGL_GUARD"
"""Marks every process that a runner's agents start, for the guard."""
_NOT_INHERITED = ("AGL_STORE_URL", "AGL_CURRENT_ROLE")
_CHUNK = 64 * 1024


class OutputPipe:
    """A pipe that a program writes to; what comes out is kept within bounds. Used as a context manager.

    Args:
        watch: is given every piece, too.
    """

    def __init__(self, watch: Callable[[bytes], None] | None = None) -> None:
        self.kept = KeptBytes()
        self._watch = watch
        self._reading, self.writing = -1, -1
        """File descriptors: this process's end, and the program's."""

    def __enter__(self) -> Self:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        asyncio.get_running_loop().add_reader(self._reading, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        self.started()
        self.drain()
        if self._reading >= 0:
            self._close()

    def started(self) -> None:
        """The program has its end: give up ours, so that the pipe ends with the program."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def drain(self) -> None:
        """Take all that was written so far."""
        while self._reading >= 0 and self._read():
            pass

    def _read(self) -> bool:
        """Take the next piece; False when there is none for now."""
        try:
            data = os.read(self._reading, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._close()
            return False
        self.kept.add(data)
        if self._watch is not None:
            self._watch(data)
        return True

    def _close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._reading)
        os.close(self._reading)
        self._reading = -1


def inherited_environment() -> dict[str, str]:
    """Return this process's environment without what is about the runner itself, its tokens above all."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _NOT_INHERITED and not (name.startswith("AGL_") and name.endswith("_TOKEN"))
    }


@asynccontextmanager
async def program(
    argv: Sequence[str],
    *,
    mark: str,
    environment: Mapping[str, str],
    cwd: str | None = None,
    stdin: int = DEVNULL,
    stdout: int = DEVNULL,
    stderr: int = DEVNULL,
    pass_fds: Sequence[int] = (),
) -> AsyncGenerator[Process]:
    """Start a program in a session of its own; when the block ends, so do the program and all that it started.

    Args:
        argv: the program and its arguments.
        mark: ``NAME=value``, which the environment contains and no other program's does.
        environment: of the program, all of it.
        cwd: where it starts; None is here.
        stdin: file descriptors, as ``asyncio.create_subprocess_exec`` takes them.
        stdout: the same.
        stderr: the same.
        pass_fds: further file descriptors that the program gets.

    Raises:
        OSError: it cannot be started.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    )
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):
            await _ended(await starting, mark)
        raise
    try:
        yield process
    finally:
        await _ended(process, mark)


@asynccontextmanager
async def guarded() -> AsyncGenerator[str]:
    """Give a mark; processes that have it as ``AGL_GUARD`` end with the block, also when this process is killed."""
    mark = secrets.token_hex(8)
    guard = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", process_tree.__file__, f"{GUARD_VARIABLE}={mark}"),
        stdin=PIPE,
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,
    )
    try:
        yield mark
    finally:
        assert guard.stdin is not None
        guard.stdin.close()
        try:
            async with asyncio.timeout(process_tree.KILL_SECONDS):
                await guard.wait()
        except TimeoutError:
            guard.kill()
            await guard.wait()


async def _ended(process: Process, mark: str) -> None:
    """Ask the program to end, give it a moment, and kill what is left of it and of all that it started."""
    root = process.pid
    try:
        if process.returncode is None:
            await in_thread(
                lambda: process_tree.signal_tree(signal.SIGTERM, mark, root), name=f"agl end {root}"
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(TERM_SECONDS):
                    await process.wait()
    finally:
        left = await in_thread(lambda: process_tree.kill_tree(mark, root), name=f"agl kill {root}")
        if left:
            log.error("processes that cannot be killed (%s): %s", mark, sorted(left))
        else:
            await process.wait()
