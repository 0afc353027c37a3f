"""ProcessPool: keeps runner processes alive - starts them, restarts those that die, and says why it gives up."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections.abc import Callable, Mapping

from agl.errors import AccessDeniedError, AglError, ConfigError, RunStoppedError, StoreChangedError
from agl.runners.child import END_SECONDS
from agl.runners.orders import DRAIN, Word, framed
from agl.runners.watched import MARGIN_SECONDS, WatchedProcess, watched, within

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
"""Between a death and the restart: doubling with each death in a row."""
SHOWN_LINES = 3
"""Of the last words of a process, in the message about its death."""


class ProcessPool:
    """Runner processes of one order.

    Args:
        order: packed; see ``Order``.
        drain_seconds: that a process asked to drain may take.
        max_crashes: deaths in a row of one process without an attempt ended; more end the pool.
        rng: uniform numbers from 0 to 1, for jitter.
    """

    def __init__(
        self,
        order: bytes,
        *,
        drain_seconds: float,
        max_crashes: int,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._order = framed(order)
        self._drain_seconds = drain_seconds
        self._max_crashes = max_crashes
        self._rng = rng
        self._living: dict[int, WatchedProcess] = {}

    @property
    def pids(self) -> list[int]:
        """Process ids of those that live."""
        return [process.pid for process in self._living.values()]

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
            process = await self._lived(slot, stop)
            if process.refused is not None:
                raise _error_of(process.refused)
            if stop.is_set():
                return
            crashes = 1 if process.settled else crashes + 1
            how = _death(process.returncode)
            if crashes >= self._max_crashes:
                raise RunStoppedError(
                    f"runner process {slot} died {crashes} times in a row without bringing an attempt to its end, the"
                    f" last time {how}: {_last_words(process)}"
                )
            pause = pause_seconds(crashes, self._rng())
            log.warning(
                "runner process %d (pid %d) died %s; another one starts in %.1f s",
                slot,
                process.pid,
                how,
                pause,
            )
            await within(stop, pause)

    async def _lived(self, slot: int, stop: asyncio.Event) -> WatchedProcess:
        """Start a process and return it when it has ended."""
        async with watched(slot) as process:
            self._living[slot] = process
            asked = asyncio.create_task(stop.wait())
            ended = asyncio.create_task(process.ended.wait())
            try:
                process.send(self._order)
                await asyncio.wait((ended, asked), return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    process.send(DRAIN)
                    await within(process.ended, self._drain_seconds + END_SECONDS + MARGIN_SECONDS)
            finally:
                asked.cancel()
                ended.cancel()
                del self._living[slot]
        return process


def pause_seconds(crashes: int, chance: float) -> float:
    """Return the pause before the restart after so many deaths in a row; ``chance`` from 0 to 1 takes half of it."""
    longest = min(FIRST_PAUSE_SECONDS * 2.0 ** (min(crashes, 32) - 1), LONGEST_PAUSE_SECONDS)
    return longest * (0.5 + chance / 2)


def _death(code: int | None) -> str:
    if code is None or code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def _last_words(process: WatchedProcess) -> str:
    lines = [line.strip() for line in process.tail if line.strip()]
    return " | ".join(lines[-SHOWN_LINES:]) or "it wrote nothing; run the agent by itself with `agl run`"


def _error_of(word: Word) -> AglError:
    """The refusal as the error that it was in the child."""
    kinds: Mapping[str, type[AglError]] = {
        kind.__name__: kind for kind in (AccessDeniedError, StoreChangedError)
    }
    return kinds.get(word.cause, ConfigError)(word.message)
