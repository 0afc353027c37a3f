"""A server that speaks MongoDB's wire protocol, for tests: briskdb in a process of its own, one for the whole
session.

It knows find-and-modify, unique indexes, bulk writes and simple pipelines; it has no transactions, no change streams,
and documents of at most 512 KiB. Run as a program it serves until its input ends, so it cannot outlive the tests.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from pymongo import MongoClient

COLLECTIONS = ("rollouts", "spans", "resources", "workers", "runs", "metrics", "batches", "blobs", "store")


class MongoServer:
    """The server's process and its URL.

    It serves 32 connections; each client has one more than ``connections_per_client``, for watching the server.
    """

    def __init__(self, *, connections_per_client: int = 4) -> None:
        memory = Path("/dev/shm")  # files in memory where the system has them: every write is synced
        self._folder = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        address = self._process.stdout.readline().strip()
        assert address, "the server did not start"
        self.url = f"mongodb://{address}/?directConnection=true&maxPoolSize={connections_per_client}"
        self._client: MongoClient[dict[str, Any]] = MongoClient(self.url)

    def clear(self, database: str = "agl", prefix: str = "") -> None:
        """Delete every record of a namespace and keep its indexes, which take long to make."""
        for name in COLLECTIONS:
            kept = {"_id": {"$ne": "store"}} if name == "store" else {}
            self._client[database][f"{prefix}{name}"].delete_many(kept)

    def stop(self) -> None:
        """End the process and delete its files."""
        self._client.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._folder.cleanup()


@lru_cache(maxsize=1)
def mongo_server() -> MongoServer:
    """Return the session's server, started at the first call and stopped when the tests end."""
    server = MongoServer()
    atexit.register(server.stop)
    return server


def serve(folder: str) -> None:
    """Serve until the input ends."""
    import briskdb

    config = briskdb.Config(shards=2, documents=True, request_timeout_ms=300_000)
    with briskdb.open(folder, config=config) as database:
        listener = database._serve_mongo(index_build_timeout_ms=300_000)  # 32 connections instead of 8
        sys.stdout.write(f"{listener.address}\n")
        sys.stdout.flush()
        sys.stdin.read()
        listener.close()


if __name__ == "__main__":
    serve(sys.argv[1])
