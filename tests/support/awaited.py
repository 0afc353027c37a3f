"""Waiting for what other processes do, with a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
LIMIT_SECONDS = 30.0


async def soon(look: Callable[[], Awaitable[T | None]], *, what: str, seconds: float = LIMIT_SECONDS) -> T:
    """Return the first answer that is true."""
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        found = await look()
        if found:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"{what} did not come true in {seconds:g} s")


async def number_in(path: Path) -> int:
    """Return the number in a file, once it is there."""

    async def look() -> int | None:
        return int(path.read_text() or 0) if path.exists() else None

    return await soon(look, what=f"a number in {path.name}")


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


async def ended(pid: int, *, seconds: float = LIMIT_SECONDS) -> None:
    """Return when the process has ended."""

    async def look() -> bool:
        return not alive(pid)

    await soon(look, what=f"the end of process {pid}", seconds=seconds)


def children_of(pid: int) -> list[int]:
    """Return the processes whose parent that is."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(entry.name))
    return found
