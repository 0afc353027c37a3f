"""Ctrl-C at a moment of a command: what became of it, how long it took, and whether something is left of it."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "AGL_TEST_INTERRUPTED"
"""In the environment of a command and of all that it starts, another value for each."""
LIMIT_SECONDS = 5.0
HANGS_SECONDS = 90.0
"""However busy the machine is: what has not ended by then hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a command ended.

    Args:
        code: its exit code.
        was_over: it had ended before the signal.
        seconds: from the signal to the end, less the time in which the command could have run and the machine had no
            core for it.
        left: command lines of processes that outlive it.
    """

    code: int
    out: str
    err: str
    was_over: bool
    seconds: float
    left: list[str]

    @property
    def came_too_soon(self) -> bool:
        """Whether the signal came before the first line of agl: the interpreter answered it in its own way."""
        return self.code != 130 and "Traceback" in self.err and "__main__.py" not in self.err

    def check(self) -> None:
        """What a command promises of Ctrl-C."""
        assert (self.code, self.left) == (130, []), self
        assert "Traceback" not in self.err, self.err
        assert self.err.splitlines()[-1].startswith("agl: interrupted"), self.err
        assert self.seconds < LIMIT_SECONDS, self


def moments(seed: int, number: int, *, until: float) -> list[float]:
    """Return random moments, one in each of equal parts of the time, in random order."""
    rng = random.Random(seed)
    found = [until * (part + rng.random()) / number for part in range(number)]
    rng.shuffle(found)
    return found


def series(
    arguments: Callable[[], Sequence[str]],
    *,
    folder: Path,
    seed: int,
    number: int,
    until: float,
    environment: dict[str, str] | None = None,
) -> None:
    """Press Ctrl-C at so many random moments of the command, a new process each time, and check each ending.

    Args:
        arguments: of the next process.
        folder: where it starts.
        seed: of the moments.
        number: how many.
        until: the last of them, in seconds from the start.
        environment: on top of the test's own.
    """
    for after in moments(seed, number, until=until):
        ending = interrupted(arguments(), folder=folder, after=after, environment=environment)
        while ending.came_too_soon:
            after += 0.1
            ending = interrupted(arguments(), folder=folder, after=after, environment=environment)
        assert not ending.was_over, f"it ended before {after:.2f} s: {ending}"
        ending.check()


def interrupted(
    arguments: Sequence[str], *, folder: Path, after: float, environment: dict[str, str] | None = None
) -> Ending:
    """Start ``agl``, press Ctrl-C once it had so many seconds to run, and wait for its end and what it started."""
    mark = secrets.token_hex(8)
    with subprocess.Popen(
        [sys.executable, "-m", "agl", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **(environment or {}), MARK: mark},
    ) as process:
        try:
            _let_run(process, after)
            was_over = process.poll() is not None
            asked, waited = time.monotonic(), _waited_for_core(process.pid)
            if not was_over:
                os.killpg(process.pid, signal.SIGINT)
            out, err, waits = _ended(process, waited)
            seconds = time.monotonic() - asked - waits
        finally:
            process.kill()
    left = [said for _, said in marked(mark)]
    code = process.returncode
    return Ending(code=code, out=out, err=err, was_over=was_over, seconds=seconds, left=left)


def _let_run(process: subprocess.Popen[str], seconds: float) -> None:
    """Return when it had so long to run, or has ended: time in which the machine had no core for it does not count."""
    begun = time.monotonic()
    while (left := seconds - (time.monotonic() - begun - _waited_for_core(process.pid))) > 0:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=max(min(left, 0.1), 0.001))
            return


def _ended(process: subprocess.Popen[str], waited: float) -> tuple[str, str, float]:
    """Wait for the end; return what it wrote and how long it waited for a core meanwhile."""
    deadline, last = time.monotonic() + HANGS_SECONDS, waited
    while True:
        try:
            out, err = process.communicate(timeout=0.05)
        except subprocess.TimeoutExpired:
            last = max(last, _waited_for_core(process.pid))
            if time.monotonic() > deadline:
                raise AssertionError(f"{process.args} does not end") from None
        else:
            return out, err, last - waited


def _waited_for_core(pid: int) -> float:
    """Return for how many seconds the process's main thread was ready to run and had no core."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def marked(mark: str) -> list[tuple[int, str]]:
    """Return the processes that live with this mark in their environment: id and command line."""
    found: list[tuple[int, str]] = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            if f"{MARK}={mark}".encode() not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            said = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in ("Z", "X"):
            found.append((int(folder.name), said))
    return found
