"""ProcessPool: keeps runner processes alive - starts, watches, restarts and ends them."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from agl.errors import AccessDeniedError, AglError, ConfigError, RunStoppedError, StoreChangedError
from agl.runners.child import END_SECONDS
from agl.runners.orders import DRAIN, Word, framed, word_in
from agl.runners.sessions import end_session

log = logging.getLogger(__name__)
output = logging.getLogger("agl.runners.output")
"""What the processes and the agents in them write, line by line."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
"""Between a death and the restart: doubling with each death in a row."""
KEPT_LINES = 20
"""Of what a process wrote last, for the message about its death."""
LINE_BYTES = 8192
"""Longer lines are cut into pieces."""
LAST_WORDS_SECONDS = 0.5
"""For reading what is left in the pipes of a dead process; something it has started may hold them open."""
MARGIN_SECONDS = 0.4
"""A process may be late by so much before it is killed."""


@dataclass(slots=True)
class Life:
    """What is known of one process."""

    process: asyncio.subprocess.Process
    settled: bool = False
    """It has brought an attempt to its end."""
    refused: Word | None = None
    tail: deque[str] = field(default_factory=lambda: deque[str](maxlen=KEPT_LINES))


class ProcessPool:
    """Runner processes of one order.

    Args:
        order: packed; see ``Order``.
        drain_seconds: that a process asked to drain may take.
        max_crashes: deaths in a row of one process without an attempt ended; more end the pool.
        note: takes a line that a person should read while it happens.
        rng: uniform numbers from 0 to 1, for jitter.
    """

    def __init__(
        self,
        order: bytes,
        *,
        drain_seconds: float,
        max_crashes: int,
        note: Callable[[str], None],
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._order = framed(order)
        self._drain_seconds = drain_seconds
        self._max_crashes = max_crashes
        self._note = note
        self._rng = rng
        self._lives: dict[int, Life] = {}

    @property
    def pids(self) -> list[int]:
        """Process ids of those that live."""
        return [life.process.pid for life in self._lives.values()]

    async def keep_one(self, slot: int, stop: asyncio.Event) -> None:
        """Keep one process alive until ``stop`` is set; then let it drain. Cancelled, it ends the process at once.

        Args:
            slot: its number, for messages.
            stop: ends the pool.

        Raises:
            ConfigError: the process cannot work, and no other could.
            RunStoppedError: it dies again and again.
        """
        crashes = 0
        while not stop.is_set():
            life = await self._lived(slot, stop)
            if life.refused is not None:
                raise _error_of(life.refused)
            if stop.is_set():
                return
            crashes = 1 if life.settled else crashes + 1
            how = _death(life.process.returncode)
            if crashes >= self._max_crashes:
                raise RunStoppedError(
                    f"runner process {slot} died {crashes} times in a row without bringing an attempt to its end, the"
                    f" last time {how}: {_last_words(life)}"
                )
            pause = pause_seconds(crashes, self._rng())
            self._note(
                f"runner process {slot} (pid {life.process.pid}) died {how}; another one starts in {pause:.1f} s"
            )
            await _set_within(stop, pause)

    async def _lived(self, slot: int, stop: asyncio.Event) -> Life:
        """Start a process and return when it has ended; nothing of it is left then."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-u", "-m", "agl.runners.child"),  # unbuffered: what agents print is seen at once
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the parent; and what is left of a dead process is found by it
            env=_environment(os.environ),
        )
        life = self._lives[slot] = Life(process)
        readers = [
            asyncio.create_task(_take_words(life, slot)),
            asyncio.create_task(_take_lines(life, slot)),
        ]
        ended = asyncio.create_task(process.wait())
        asked = asyncio.create_task(stop.wait())
        try:
            await _send(process, self._order)
            await asyncio.wait((ended, asked), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await _send(process, DRAIN)
                limit = self._drain_seconds + END_SECONDS + MARGIN_SECONDS
                await asyncio.wait((ended,), timeout=limit)
        finally:
            asked.cancel()
            await self._end(life, ended)
            await asyncio.wait(readers, timeout=LAST_WORDS_SECONDS)
            for reader in readers:
                reader.cancel()
            del self._lives[slot]
        return life

    async def _end(self, life: Life, ended: asyncio.Task[int]) -> None:
        """Make sure that nothing is left of a process: by the end of its input, then by force."""
        if not ended.done():
            assert life.process.stdin is not None
            life.process.stdin.close()
            await asyncio.wait((ended,), timeout=END_SECONDS + MARGIN_SECONDS)
        if not ended.done():
            log.warning("the runner process %d does not end and is killed", life.process.pid)
            with suppress(ProcessLookupError):
                life.process.kill()
            await ended
        end_session(life.process.pid)


def pause_seconds(crashes: int, chance: float) -> float:
    """Return the pause before the restart after so many deaths in a row; ``chance`` from 0 to 1 takes half of it."""
    longest = min(FIRST_PAUSE_SECONDS * 2.0 ** (min(crashes, 32) - 1), LONGEST_PAUSE_SECONDS)
    return longest * (0.5 + chance / 2)


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """The caller's without the store's token: agents get one that opens no more than their attempt."""
    return {name: value for name, value in own.items() if name != "AGL_STORE_TOKEN"}


async def _send(process: asyncio.subprocess.Process, data: bytes) -> None:
    assert process.stdin is not None
    with suppress(ConnectionError):  # it has died; its end tells more
        process.stdin.write(data)
        await process.stdin.drain()


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def _take_words(life: Life, slot: int) -> None:
    assert life.process.stdout is not None
    async for line in _lines(life.process.stdout):
        word = word_in(line)
        if word is None:
            continue
        if word.kind == "refused":
            life.refused = word
        elif word.kind == "settled":
            life.settled = True
        else:
            log.info("runner process %d is the worker %s", slot, word.message)


async def _take_lines(life: Life, slot: int) -> None:
    assert life.process.stderr is not None
    async for line in _lines(life.process.stderr):
        text = line.decode(errors="replace").rstrip()
        life.tail.append(text)
        output.info("[%d] %s", slot, text)


async def _lines(stream: asyncio.StreamReader) -> AsyncGenerator[bytes]:
    left = b""
    while more := await stream.read(LINE_BYTES):
        *whole, left = (left + more).split(b"\n")
        for line in whole:
            yield line
        if len(left) > LINE_BYTES:
            yield left
            left = b""
    if left:
        yield left


def _death(code: int | None) -> str:
    if code is None or code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def _last_words(life: Life) -> str:
    lines = [line.strip() for line in life.tail if line.strip()]
    return " | ".join(lines[-3:]) or "it wrote nothing; run the agent by itself with `agl run`"


def _error_of(word: Word) -> AglError:
    """The refusal as the error that it was in the child."""
    kinds: Mapping[str, type[AglError]] = {
        kind.__name__: kind for kind in (AccessDeniedError, StoreChangedError)
    }
    return kinds.get(word.cause, ConfigError)(word.message)
