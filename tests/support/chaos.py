"""Trouble for the processes of a run, by a schedule that follows from a seed.

A ``Part`` is a real process that may be killed, stopped for a while, or cut off from the store. The schedule says when
which of them has which trouble; a part that has trouble already is spared.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from awaited import alive, children_of, soon
from cut_link import Link


@dataclass(kw_only=True)
class Part:
    """A process of the run.

    Args:
        name: for logs; what it writes is in ``folder/NAME.log``.
        command: arguments of ``agl``, asked for at each start.
        folder: where it starts.
        link: between it and the store.
        agl: what ``agl`` is on the command line.
        environment: on top of the test's own.
    """

    name: str
    command: Callable[[], Sequence[str]]
    folder: Path
    link: Link | None = None
    agl: Sequence[str] = (sys.executable, "-m", "agl")
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    begun_at: int = 0
    """Where its present process begins in its log."""
    busy: bool = False
    """It has trouble."""
    fell: list[tuple[int, str]] = field(default_factory=list)
    """Exit codes of ends that nobody had asked for, with its last words."""

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def start(self) -> None:
        with self.log.open("ab") as out:
            self.begun_at = out.tell()
            self.process = subprocess.Popen(
                [*self.agl, *self.command()],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "NO_COLOR": "1", "COLUMNS": "120", **self.environment},
            )

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    def ended(self) -> int | None:
        assert self.process is not None
        return self.process.poll()

    async def said(self, words: str) -> None:
        """Return when its present process has said this."""

        async def look() -> bool:
            return words.encode() in self.log.read_bytes()[self.begun_at :]

        await soon(look, what=f"{self.name} saying {words!r}", seconds=60)

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def wait(self, seconds: float) -> int:
        assert self.process is not None
        return self.process.wait(seconds)

    async def end(self, number: signal.Signals = signal.SIGTERM, *, seconds: float = 30) -> int:
        self.send(number)
        try:
            return await asyncio.to_thread(self.wait, seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end: {self.last_words()}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What happens to a part, at which second of the schedule, and for how long."""

    at: float
    part: str
    kind: str
    seconds: float


KINDS = {
    "store": ("kill", "stop"),
    "proxy": ("kill", "stop"),
    "trainer": ("kill", "stop", "cut", "stall"),
    "pool": ("kill", "kill child", "stop child", "stop child", "cut", "stall"),
}
WEIGHTS = {"store": 1, "proxy": 1, "trainer": 1, "pool": 6}
LONGEST_SECONDS = {"store": 2.0, "proxy": 2.0, "trainer": 3.0, "pool": 5.0}
"""Of a pool: much longer than the silence after which its attempts are lost."""


def schedule(seed: int, *, seconds: float, pools: Sequence[str]) -> list[Trouble]:
    """Return what happens in so many seconds; one pool is stopped at once, and for long."""
    rng = random.Random(seed)
    found = [Trouble(at=0.0, part=pools[0], kind="stop child", seconds=LONGEST_SECONDS["pool"])]
    at = 1.0
    while at < seconds:
        sort = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        found.append(
            Trouble(
                at=at,
                part=rng.choice(pools) if sort == "pool" else sort,
                kind=rng.choice(KINDS[sort]),
                seconds=rng.uniform(0.2, LONGEST_SECONDS[sort]),
            )
        )
        at += rng.uniform(0.3, 2.0)
    return found


async def chaos(
    troubles: Sequence[Trouble], parts: Sequence[Part], *, watch: Callable[[], None]
) -> list[Trouble]:
    """Bring the troubles about at their times; return those that came about, once all of them are over.

    Args:
        troubles: in the order of their times.
        parts: that run.
        watch: called many times a second; starts again what has ended by itself.
    """
    named = {part.name: part for part in parts}
    begun = time.monotonic()
    happened: list[Trouble] = []
    async with asyncio.TaskGroup() as group:
        for trouble in troubles:
            while time.monotonic() - begun < trouble.at:
                watch()
                await asyncio.sleep(0.05)
            part = named[trouble.part]
            if not part.busy:
                happened.append(trouble)
                part.busy = True
                group.create_task(_bring(trouble, part))
    return happened


async def _bring(trouble: Trouble, part: Part) -> None:
    try:
        if trouble.kind == "kill":
            part.kill()
            await asyncio.sleep(trouble.seconds)
            part.start()
        elif trouble.kind in ("cut", "stall"):
            await _without_link(trouble, part)
        else:
            await _signalled(trouble, part)
    finally:
        part.busy = False


async def _without_link(trouble: Trouble, part: Part) -> None:
    assert part.link is not None
    if trouble.kind == "cut":
        await part.link.cut()
    else:
        part.link.stall()
    await asyncio.sleep(trouble.seconds)
    if trouble.kind == "cut":
        await part.link.mend()
    else:
        part.link.flow()


async def _signalled(trouble: Trouble, part: Part) -> None:
    assert part.process is not None
    pids = children_of(part.process.pid) if trouble.kind.endswith("child") else [part.process.pid]
    first, last = (
        (signal.SIGSTOP, signal.SIGCONT) if trouble.kind.startswith("stop") else (signal.SIGKILL, None)
    )
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, first)
    if last is None:
        return
    await asyncio.sleep(trouble.seconds)
    for pid in filter(alive, pids):
        with suppress(ProcessLookupError):
            os.kill(pid, last)
