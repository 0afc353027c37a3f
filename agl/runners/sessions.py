"""Sessions: all that a process has started and that did not leave for a session of its own, found and ended."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

ROUNDS = 3
"""Looks at the table of processes; one that forks while it is read is found by the next."""


def end_session(session_id: int, *, table: Path = Path("/proc")) -> int:
    """Kill every process of the session but the caller itself; return how many were told.

    Without a table of processes (macOS) it is the session's first process group.

    Args:
        session_id: the process id of the session's first process, which may be gone.
        table: of processes, as Linux shows it.
    """
    if not (table / "self").exists():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(session_id, signal.SIGKILL)
        return 0
    told: set[int] = set()
    for _ in range(ROUNDS):
        found = [pid for pid in members(session_id, table=table) if pid != os.getpid() and pid not in told]
        if not found:
            break
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            told.add(pid)
    return len(told)


def members(session_id: int, *, table: Path = Path("/proc")) -> list[int]:
    """Return the process ids of a session."""
    found: list[int] = []
    for place in table.iterdir():
        if place.name.isdecimal():
            with suppress(OSError):  # it has ended meanwhile
                # proc(5): pid (comm) state ppid pgrp session ...; comm may hold anything, a parenthesis too
                fields = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[3]) == session_id:
                    found.append(int(place.name))
    return found
