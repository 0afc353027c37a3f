"""Processes that serve a store file and are killed: a cheap fork, or the real command."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

START_SECONDS = 60.0
"""A server that says nothing for so long hangs; a start takes a hundredth of it."""


class Server(Protocol):
    """A process that serves a file on a port."""

    async def start(self) -> str:
        """Begin to serve and return the URL."""
        ...

    async def start_to_start(self) -> None:
        """Let the process start without waiting for it to serve."""
        ...

    async def end(self) -> None:
        """End the process, with SIGKILL unless it says otherwise; returns when it is gone."""
        ...


class ForkedServer:
    """A fork of ``store_zygote``, which has imported everything: it serves after some ten milliseconds."""

    def __init__(self, zygote: asyncio.subprocess.Process, location: Path | str, port: int) -> None:
        self._zygote = zygote
        self._order = {"location": str(location), "port": port, "most_bytes": None}
        self.pid = 0

    async def start(self, *, most_bytes: int | None = None) -> str:
        await self._say(json.dumps({**self._order, "most_bytes": most_bytes}))
        _, url, pid = (await self._heard("serving")).split()
        self.pid = int(pid)
        return url

    async def start_to_start(self) -> None:
        await self._say(json.dumps(self._order))

    async def end(self) -> None:
        await self._say("kill")
        await self._heard("killed")

    async def _say(self, line: str) -> None:
        assert self._zygote.stdin is not None
        self._zygote.stdin.write(f"{line}\n".encode())
        await self._zygote.stdin.drain()

    async def _heard(self, word: str) -> str:
        assert self._zygote.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            while line := (await self._zygote.stdout.readline()).decode():
                if line.startswith(word):
                    return line
        raise AssertionError(f"the server ended before it said {word}")


class CommandServer:
    """``agl store`` itself, and the signal that ends it."""

    def __init__(self, path: Path, port: int, ends_by: signal.Signals = signal.SIGKILL) -> None:
        self._ends_by = ends_by
        self._arguments = ("-m", "agl", "store", f"store.path={path}", "--port", str(port))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> str:
        await self.start_to_start()
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            line = (await self._process.stdout.readline()).decode()
        assert line.startswith("agl store serves"), line
        return line.split()[3]

    async def start_to_start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *self._arguments, stdout=asyncio.subprocess.PIPE
        )

    async def end(self) -> None:
        assert self._process is not None
        self._process.send_signal(self._ends_by)
        assert await self._process.wait() == (0 if self._ends_by is signal.SIGTERM else -self._ends_by)


@asynccontextmanager
async def zygote() -> AsyncGenerator[asyncio.subprocess.Process]:
    """A process that forks servers; none of them outlives the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("store_zygote.py")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def lasting_port(rng: random.Random) -> int:
    """Return a free port that no outgoing connection is given while its server is away."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    while True:
        port = rng.randrange(10_000, first)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
