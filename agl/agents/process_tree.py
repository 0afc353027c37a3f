"""End a program and everything that it started, also what left its process group or its session.

A program's processes are told by an environment variable of their own, by their session and by their parents (Linux;
elsewhere only the process group is known). Run as a script, this is the guard of a runner: it waits for its standard
input to end, as it does when the runner dies, and then ends every process with a mark. Standard library only: the guard
must start fast and stay small.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

KILL_SECONDS = 2.0
"""How long killing may take; a process that even then is there hangs in the kernel."""
_PROC = Path("/proc")
_PAUSE_SECONDS = 0.005
_MAX_LISTINGS = 20
"""On a machine where processes start all the time, one look must have an end."""


class _Process(NamedTuple):
    pid: int
    parent: int
    session: int


def members(mark: str, root: int | None = None) -> set[int]:
    """Return the processes that are alive and have ``mark`` in their environment, or are of the program ``root``.

    Args:
        mark: ``NAME=value``.
        root: process id of the program's first process, which leads a session; None to go by the mark alone.
    """
    found: set[int] = set()
    children: dict[int, list[int]] = {}
    wanted = mark.encode()
    for process in _alive():
        children.setdefault(process.parent, []).append(process.pid)
        if process.pid == root or process.session == root or wanted in _environment(process.pid):
            found.add(process.pid)
    waiting = list(found)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    found.discard(os.getpid())
    return found


def signal_tree(number: signal.Signals, mark: str, root: int) -> None:
    """Send a signal to the group of ``root`` and to all other members."""
    _signal_group(number, root)
    for pid in members(mark, root):
        if not _in_group(pid, root):
            _signal(number, pid)


def kill_tree(mark: str, root: int | None = None) -> set[int]:
    """Kill every member, and what they start meanwhile; return what could not be killed."""
    if root is not None:
        _signal_group(signal.SIGKILL, root)
    deadline = time.monotonic() + KILL_SECONDS
    looks_left = 1
    while looks_left:
        left = members(mark, root)
        for pid in left:  # none may start another while others are killed
            _signal(signal.SIGSTOP, pid)
        for pid in left:
            _signal(signal.SIGKILL, pid)
        looks_left = 2 if left else looks_left - 1  # what has just moved on is seen the second time
        if left and time.monotonic() > deadline:
            return left
        if looks_left:
            time.sleep(_PAUSE_SECONDS)
    return set()


def _alive() -> Iterator[_Process]:
    """Yield the processes of the machine that have not ended, as far as they can be seen.

    Those that start meanwhile are looked at, too: a program that moves from process to process must not slip through.
    """
    if not _PROC.is_dir():
        return
    seen: set[str] = set()
    for _ in range(_MAX_LISTINGS):
        listed = {entry for entry in os.listdir(_PROC) if entry.isdigit()}  # noqa: PTH208 - names alone: cheaper
        new = listed - seen
        if not new:
            return
        for entry in sorted(new, key=int, reverse=True):
            fields = _read(f"/proc/{entry}/stat").rpartition(b")")[2].split()
            if len(fields) > 3 and fields[0] not in (b"Z", b"X"):
                yield _Process(int(entry), int(fields[1]), int(fields[3]))
        seen |= new


def _environment(pid: int) -> list[bytes]:
    return _read(f"/proc/{pid}/environ").split(b"\0")


def _read(path: str) -> bytes:
    """The content of a file of another process, nothing when it may not be read or the process is gone."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a third faster, times all processes
            return file.read()
    except OSError:
        return b""


def _in_group(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) == group
    except OSError:
        return False


def _signal(number: signal.Signals, pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _signal_group(number: signal.Signals, group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def main() -> None:
    """Guard: wait for the end of standard input, then kill what has the mark that is the only argument."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    kill_tree(sys.argv[1])


if __name__ == "__main__":
    main()
