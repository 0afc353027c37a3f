"""WatchedProcess: one runner process as its pool sees it - what it says, what it writes, and that it has ended."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import cast

from agl.agents.process_tree import kill_tree
from agl.agents.threads import in_thread
from agl.runners.child import END_SECONDS
from agl.runners.orders import MARK, Word, word_in

log = logging.getLogger(__name__)
output = logging.getLogger("agl.runners.output")
"""What the processes and the agents in them write, line by line."""

COMMAND = (sys.executable, "-u", "-m", "agl.runners.child")
"""Unbuffered: what agents print is seen at once."""
KEPT_LINES = 20
"""Of what a process wrote last, for the message about its death."""
LINE_BYTES = 8192
"""Longer lines are cut into pieces."""
MARGIN_SECONDS = 0.4
"""A process may be late by so much before it is killed."""


class Lines:
    """Bytes as they come, handed on as lines.

    Args:
        take: is given each line, without its end.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._left = b""

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        *whole, self._left = (self._left + data).split(b"\n")
        for line in whole:
            self._take(line)
        if len(self._left) > LINE_BYTES:
            self.end()

    def end(self) -> None:
        """Hand on what has no end yet."""
        if self._left:
            self._take(self._left)
        self._left = b""


class WatchedProcess(asyncio.SubprocessProtocol):
    """A runner process. Its end is known at once, even while something that it has started holds its pipes.

    Args:
        slot: its number, for messages.
    """

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.settled = False
        """It has brought an attempt to its end."""
        self.refused: Word | None = None
        self.tail: deque[str] = deque(maxlen=KEPT_LINES)
        self.ended = asyncio.Event()
        self.pid = 0
        self.returncode: int | None = None
        self._lines = {1: Lines(self._take_word), 2: Lines(self._take_line)}
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It has started."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        """It has written something."""
        self._lines[fd].add(cast("bytes", data))

    def process_exited(self) -> None:
        """It has ended."""
        assert self._transport is not None
        self.returncode = self._transport.get_returncode()
        self.ended.set()

    def send(self, data: bytes) -> None:
        """Write to its standard input; one that has died gets nothing, its end tells more."""
        pipe = self._input()
        if pipe is not None and not pipe.is_closing():
            pipe.write(data)

    def close_input(self) -> None:
        """Let it know that nobody needs it any more."""
        pipe = self._input()
        if pipe is not None:
            pipe.close()

    def kill(self) -> None:
        """End it by force."""
        assert self._transport is not None
        with suppress(ProcessLookupError):
            self._transport.kill()

    def release(self) -> None:
        """Close the pipes, whoever else holds them."""
        for lines in self._lines.values():
            lines.end()
        if self._transport is not None:
            self._transport.close()

    def _input(self) -> asyncio.WriteTransport | None:
        assert self._transport is not None
        return cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))

    def _take_word(self, line: bytes) -> None:
        word = word_in(line)
        if word is None:
            return
        if word.kind == "refused":
            self.refused = word
        elif word.kind == "settled":
            self.settled = True
        else:
            log.info("runner process %d is the worker %s", self.slot, word.message)

    def _take_line(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        self.tail.append(text)
        output.info("[%d] %s", self.slot, text)


@asynccontextmanager
async def watched(slot: int) -> AsyncGenerator[WatchedProcess]:
    """Start a runner process; when the block ends, nothing is left of it and of what it has started."""
    token = secrets.token_hex(8)
    process = WatchedProcess(slot)
    await asyncio.get_running_loop().subprocess_exec(
        lambda: process,
        *COMMAND,
        start_new_session=True,  # Ctrl-C is for the parent
        env={**_environment(os.environ), MARK: token},
    )
    try:
        yield process
    finally:
        await _end(process, f"{MARK}={token}")


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """The caller's without the store's token: agents get one that opens no more than their attempt."""
    return {name: value for name, value in own.items() if name != "AGL_STORE_TOKEN"}


async def _end(process: WatchedProcess, mark: str) -> None:
    """End a process by the end of its input, then by force; and what is left of what it has started."""
    try:
        process.close_input()
        if not await within(process.ended, END_SECONDS + MARGIN_SECONDS):
            log.warning("the runner process %d does not end and is killed", process.pid)
    finally:
        process.kill()
        left = await in_thread(lambda: kill_tree(mark, process.pid), name=f"agl kill {process.pid}")
        if left:
            log.error("processes of the runner process %d that cannot be killed: %s", process.pid, left)
        await process.ended.wait()
        process.release()


async def within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event for so long; tell whether it came."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
