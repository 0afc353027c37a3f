"""Workers in SQL: who executes rollouts, and whether they still live."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from agl.errors import NotFoundError
from agl.store.sqlite.attempts import renew
from agl.store.sqlite.rows import Row, json_list, json_text
from agl.store.sqlite.writer import Transaction
from agl.types import Worker

OFFLINE_SECONDS = 60.0
"""A worker silent for longer is shown as offline; the same as the default of ``get_active_workers``."""
WORKERS = (
    "(SELECT *, CASE WHEN last_heartbeat_at < ? THEN 'offline' WHEN EXISTS (SELECT 1 FROM attempt a"
    " WHERE a.worker_id = worker.worker_id AND a.finished_at IS NULL) THEN 'busy' ELSE 'idle' END AS status"
    " FROM worker) w"
)
"""The table with each worker's status; its parameter is ``alive_since``."""
COLUMNS = "w.worker_id, w.host, w.pid, w.status, w.attempts, w.registered_at, w.last_heartbeat_at, w.stats, w.position"


def register(transaction: Transaction, worker_id: str, host: str, pid: int) -> Worker:
    """Add a worker, or refresh the row of one that starts anew."""
    transaction.db.execute(
        "INSERT INTO worker VALUES (:position, :worker_id, :host, :pid, '[]', :now, :now, '{}')"
        " ON CONFLICT (worker_id) DO UPDATE SET host = :host, pid = :pid, attempts = '[]', last_heartbeat_at = :now",
        {
            "position": transaction.position(),
            "worker_id": worker_id,
            "host": host,
            "pid": pid,
            "now": transaction.now,
        },
    )
    row = transaction.row(
        f"SELECT {COLUMNS} FROM {WORKERS} WHERE w.worker_id = ?", (alive_since(transaction.now), worker_id)
    )
    assert row is not None
    return from_row(row)


def heartbeat(
    transaction: Transaction, worker_id: str, attempts: Sequence[str], stats: Mapping[str, Any] | None
) -> list[str]:
    """Renew a worker and its attempts; return those that are not its own to finish."""
    text = None if stats is None else json_text(dict(stats), f"stats of worker {worker_id}")
    if transaction.row("SELECT 1 FROM worker WHERE worker_id = ?", (worker_id,)) is None:
        raise NotFoundError(f"no worker has the id {worker_id!r}: register it first")
    lost = renew(transaction, worker_id, attempts) if attempts else []
    gone = set(lost)
    kept = json_list(attempt_id for attempt_id in attempts if attempt_id not in gone)
    transaction.db.execute(
        "UPDATE worker SET last_heartbeat_at = ?, attempts = ?, stats = coalesce(?, stats) WHERE worker_id = ?",
        (transaction.now, kept, text, worker_id),
    )
    return lost


def active(db: sqlite3.Connection, now: float, within_seconds: float) -> list[Worker]:
    """Return the workers heard of within that time, in the order of their registration."""
    rows = db.execute(
        f"SELECT {COLUMNS} FROM {WORKERS} WHERE w.last_heartbeat_at >= ? ORDER BY w.position",
        (alive_since(now), now - within_seconds),
    )
    return [from_row(row) for row in rows]


def alive_since(now: float) -> float:
    """Return since when a worker must have been heard of not to be offline."""
    return now - OFFLINE_SECONDS


def from_row(row: Row) -> Worker:
    """Return the worker of ``COLUMNS``."""
    return Worker(
        worker_id=row[0],
        host=row[1],
        pid=row[2],
        status=row[3],
        attempts=tuple(orjson.loads(row[4])),
        registered_at=row[5],
        last_heartbeat_at=row[6],
        stats=orjson.loads(row[7]),
    )
