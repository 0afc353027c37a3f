"""Forks a process that serves a store for each line it reads: a start costs no imports, and a kill is a real one.

Run as a program. It reads ``{"location", "port", "most_bytes"}`` and starts, or ``kill`` and kills; it says
``serving URL PID`` and ``killed``. ``most_bytes`` is the largest file that the server may write: a disk that is full.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path

from agl.store.base import LightningStore
from agl.store.mongo import MongoLightningStore
from agl.store.server import StoreServer
from agl.store.sqlite import SqliteLightningStore


def store_at(location: str) -> LightningStore:
    if location.startswith("mongodb:"):
        return MongoLightningStore(location, journal=False, timeout_seconds=60)  # as the test server wants it
    return SqliteLightningStore(location)


async def serve(location: str, port: int) -> None:
    async with store_at(location) as store, StoreServer(store, port=port).serving() as url:
        os.write(1, f"serving {url} {os.getpid()}\n".encode())
        await asyncio.Event().wait()


def start(location: str, port: int, most_bytes: int | None) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.close(0)
    if not location.startswith("mongodb:"):
        tempfile.tempdir = str(Path(location).parent)  # what a kill leaves behind goes with the test's folder
    if most_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
    try:
        asyncio.run(serve(location, port))
    finally:
        os._exit(1)


def main() -> None:
    child = 0
    try:
        for line in sys.stdin:
            if line.strip() == "kill":
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                child = 0
                os.write(1, b"killed\n")
            else:
                child = start(**json.loads(line))
    finally:
        if child:
            os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
