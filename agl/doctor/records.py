"""The store: one that is served, or whether this disk can hold one."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median

from agl.doctor.findings import Finding, failure, fine, warning
from agl.errors import AccessDeniedError, StoreError
from agl.store.base import LightningStore
from agl.store.client import LightningStoreClient
from agl.store.sqlite import SqliteLightningStore
from agl.types import RolloutRequest

ROUND_TRIPS = 5
FAR_MS = 50.0
"""A rollout takes some ten calls of the store."""
SLOW_SYNC_MS = 50.0
"""A disk with a cache that survives a power cut takes under 1 ms, a plain SSD 1 to 5."""


async def served_store(url: str, token: str | None, *, seconds: float = 10.0) -> list[Finding]:
    """Look at the store that is served there: who it is, whether the token is let in, and how far away it is."""
    store = LightningStoreClient(
        url, token=token, retry_seconds=0.0, answer_seconds=seconds, open_seconds=seconds
    )
    return await findings_from(store, sent="the token of AGL_STORE_TOKEN" if token else "no token")


async def findings_from(store: LightningStore, *, sent: str) -> list[Finding]:
    """Return the findings for a store that is built and not open; ``sent`` is what it was sent as its token."""
    try:
        async with store:
            health = await store.health()
            await store.statistics()
            times: list[float] = []
            for _ in range(ROUND_TRIPS):
                begin = time.perf_counter()
                await store.health()
                times.append((time.perf_counter() - begin) * 1e3)
    except AccessDeniedError as error:
        fix = "set AGL_STORE_TOKEN to the token that `agl store` was started with"
        return [failure("store", f"{store.location} refuses {sent}: {_line(error)}", fix)]
    except StoreError as error:
        fix = "start it there (agl store), or see the address, firewalls and proxies between"
        return [failure("store", _line(error), fix)]
    identity = str(health["identity"])
    words = f"{store.location} is {identity}, schema {health['schema_version']}; {sent} accepted"
    return [fine("store", words), _distance(median(times))]


def _distance(milliseconds: float) -> Finding:
    words = f"{milliseconds:.1f} ms to the store"
    if milliseconds > FAR_MS:
        return warning("round trip", words, "run agents and training nearer to the store")
    return fine("round trip", words)


async def scratch_store(folder: Path) -> list[Finding]:
    """Write a small store on the disk of a folder, read it back after it was closed, and take it away again."""
    there = _existing(folder)
    with tempfile.TemporaryDirectory(prefix=".agl-doctor-", dir=there) as place:
        file = Path(place) / "store.sqlite"
        async with SqliteLightningStore(str(file)) as store:
            begin = time.perf_counter()
            request = RolloutRequest(task={"doctor": True}, rollout_id="doctor")
            await store.enqueue_rollout(request)
            write_ms = (time.perf_counter() - begin) * 1e3
        async with SqliteLightningStore(str(file)) as store:
            kept = await store.get_rollout_by_id("doctor")
        journal = _journal(file)
        sync_ms = _sync_ms(Path(place) / "sync")
    if kept.task != {"doctor": True}:
        return [failure("store", f"{there} does not keep what is written", "use another disk: --run-dir")]
    if journal != "wal":
        fix = "use a local disk (--run-dir): without a write-ahead log readers and the writer wait for each other"
        return [warning("store", f"SQLite on {there} has journal {journal}, not wal", fix)]
    words = (
        f"SQLite written and read back, write-ahead log, {write_ms:.1f} ms a write, {sync_ms:.1f} ms a sync"
    )
    if sync_ms > SLOW_SYNC_MS:
        return [warning("store", words, "use a faster disk (--run-dir): checkpoints wait for it")]
    return [fine("store", words)]


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir())


def _journal(file: Path) -> str:
    """The mode that is written in a database's header, which a killed process leaves behind too."""
    header = file.read_bytes()[:20]
    return "wal" if header[18:20] == b"\x02\x02" else "rollback"


def _sync_ms(file: Path) -> float:
    times: list[float] = []
    with file.open("wb") as out:
        for _ in range(5):
            out.write(bytes(4096))
            out.flush()
            begin = time.perf_counter()
            os.fsync(out.fileno())
            times.append((time.perf_counter() - begin) * 1e3)
    return median(times)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
