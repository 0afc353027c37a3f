"""Operations on the store as a whole: health, counts, metrics, tokens, backup and restoring."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, BinaryIO

from prometheus_client import CONTENT_TYPE_LATEST

from agl.errors import NotFoundError
from agl.store import wire
from agl.store.base import Backup
from agl.store.restoring import Restores
from agl.store.server.metrics import ServerMetrics
from agl.store.server.operation import Answer, Body, Call, Operation
from agl.store.server.records import OfRun
from agl.store.server.refusal import RefusedError
from agl.types import AttemptQuery
from agl.types.record import Record
from agl.types.tokens import scoped_token

_CHUNK_BYTES = 256 * 1024


class Health(Record):
    """What the health answers."""

    status: str
    identity: str
    """A uuid made with the file or database."""
    schema_version: int
    size_bytes: int | None = None
    """Of the records on disk, where the store knows."""


class ScopedToken(Record):
    """A token that may touch one attempt only."""

    token: str


class Status:
    """The handlers that need to know the server's token or metrics."""

    def __init__(self, *, token: str | None, metrics: ServerMetrics) -> None:
        self._token = token
        self._metrics = metrics

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations of this module."""
        return (
            Operation(
                method="GET",
                path="/v1/health",
                run=_health,
                summary="Whether the store serves, and which one it is; needs no token",
                answers=Health,
                needs_token=False,
            ),
            Operation(
                method="GET",
                path="/v1/statistics",
                run=_statistics,
                summary="Counts of everything, or of one run",
                parameters=OfRun,
                answers=dict[str, Any],
            ),
            Operation(
                method="GET",
                path="/metrics",
                run=self._metrics_text,
                summary="Metrics in Prometheus' text format",
                answers=CONTENT_TYPE_LATEST,
            ),
            Operation(
                method="POST",
                path="/v1/tokens",
                run=self._scoped_token,
                summary="Make a token that may touch one attempt only",
                body=Body(kind=wire.AttemptKey),
                answers=ScopedToken,
                may=("not_found", "conflict"),
            ),
            Operation(
                method="GET",
                path="/v1/backup",
                run=_backup,
                summary="A consistent copy of the store as an SQLite file",
                answers="application/vnd.sqlite3",
                may=("not_found",),
            ),
            Operation(
                method="POST",
                path="/v1/restore",
                run=_restore,
                summary="Take in runs, rollouts with attempts, and spans as another store recorded them",
                body=Body(kind=wire.Restore),
                answers=dict[str, int],
                writes=True,
                may=("not_found", "conflict"),
            ),
        )

    async def _metrics_text(self, call: Call) -> object:
        statistics, health = await call.store.statistics(), await call.store.health()
        body = self._metrics.text(statistics, health, call.store.location)
        return Answer(body=body, media_type=CONTENT_TYPE_LATEST)

    async def _scoped_token(self, call: Call) -> object:
        key: wire.AttemptKey = call.body
        if self._token is None:
            raise RefusedError("conflict", "this server asks for no token, so there is none to make")
        query = AttemptQuery(rollout_id=key.rollout_id, order="desc")
        if not any(
            attempt.attempt_id == key.attempt_id for attempt in (await call.store.query_attempts(query)).items
        ):
            raise NotFoundError(f"rollout {key.rollout_id!r} has no attempt {key.attempt_id!r}")
        return {"token": scoped_token(self._token, key.rollout_id, key.attempt_id)}


async def _health(call: Call) -> object:
    return await call.store.health()


async def _statistics(call: Call) -> object:
    wanted: OfRun = call.parameters
    return await call.store.statistics(run_id=wanted.run_id)


async def _backup(call: Call) -> object:
    store = call.store
    if not isinstance(store, Backup):
        raise RefusedError("not_found", f"the store at {store.location} has no file to copy")
    with tempfile.TemporaryDirectory(prefix="agl-backup-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "store.sqlite"
        await call.polls.wait(call.receive, store.backup(str(path)), otherwise=None)
        if not path.exists():
            raise RefusedError("unavailable", "the server is stopping")
        # The open file loses its name with the folder: a kill while it is sent leaves nothing behind.
        copy = await asyncio.to_thread(path.open, "rb")
    return Answer(
        chunks=_chunks(copy),
        length=os.fstat(copy.fileno()).st_size,
        media_type="application/vnd.sqlite3",
        headers=((b"content-disposition", b'attachment; filename="store.sqlite"'),),
    )


async def _restore(call: Call) -> object:
    records: wire.Restore = call.body
    if not isinstance(call.store, Restores):
        raise RefusedError("not_found", f"the store at {call.store.location} takes in no records of others")
    return await call.store.restore(runs=records.runs, rollouts=records.rollouts, spans=records.spans)


async def _chunks(copy: BinaryIO) -> AsyncGenerator[bytes]:
    with copy:
        while chunk := await asyncio.to_thread(copy.read, _CHUNK_BYTES):
            yield chunk
