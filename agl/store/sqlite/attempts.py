"""Attempts in SQL: insert, report, renew, and the index on deadlines that the watchdog sweeps."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from agl.errors import NotFoundError
from agl.store import lifecycle
from agl.store.sqlite.held import save_attempt, save_rollout
from agl.store.sqlite.rows import (
    HELD_COLUMNS,
    NUM_ROLLOUT_COLUMNS,
    config_from_text,
    held_from_rows,
    json_list,
)
from agl.store.sqlite.writer import Transaction
from agl.types import AttemptedRollout

_RENEW = (
    "UPDATE attempt SET status = 'running', last_heartbeat_at = ?, lease = ?, deadline = ? WHERE position = ?"
)
FIRST_SIGN = "UPDATE rollout SET status = 'running' WHERE position = ? AND status = 'preparing'"


def report(
    transaction: Transaction, rollout_id: str, attempt_id: str, said: lifecycle.AttemptReport
) -> AttemptedRollout:
    """Apply a worker's report to its attempt and the rollout."""
    row = transaction.row(
        f"SELECT {HELD_COLUMNS} FROM attempt a JOIN rollout r ON r.position = a.rollout WHERE a.attempt_id = ?",
        (attempt_id,),
    )
    if row is None or row[0] != rollout_id:
        known = transaction.row("SELECT 1 FROM rollout WHERE rollout_id = ?", (rollout_id,))
        missing = f"rollout {rollout_id!r} has no attempt {attempt_id!r}"
        raise NotFoundError(missing if known else f"no rollout has the id {rollout_id!r}")
    (held,) = held_from_rows(transaction.db, [row])
    ended_by = row[NUM_ROLLOUT_COLUMNS + 9]
    new = lifecycle.reported(held, said, now=transaction.now, ended_by=ended_by)
    if new is not held:
        ends = lifecycle.is_terminal(new.attempt.status)
        save_attempt(transaction, new.rollout.config, new.attempt, said.digest() if ends else None)
        if new.rollout is not held.rollout:
            save_rollout(transaction, row[NUM_ROLLOUT_COLUMNS - 1], held.rollout, new.rollout)
    return new


def renew(transaction: Transaction, worker_id: str, attempt_ids: Sequence[str]) -> list[str]:
    """Apply a sign of life to the worker's open attempts; return those that are not its own to finish."""
    rows = transaction.rows(
        "SELECT a.attempt_id, a.position, a.rollout, a.status, a.started_at, r.config FROM attempt a"
        " JOIN rollout r ON r.position = a.rollout"
        " WHERE a.attempt_id IN (SELECT value FROM json_each(?)) AND a.finished_at IS NULL"
        " AND (a.worker_id = ? OR a.worker_id IS NULL)",
        (json_list(attempt_ids), worker_id),
    )
    for _, position, rollout_position, status, started_at, text in rows:
        config = config_from_text(text)
        lease = lifecycle.lease_end(config, transaction.now)
        due = lifecycle.next_deadline(config, started_at=started_at, lease=lease)
        transaction.db.execute(_RENEW, (transaction.now, lease, due, position))
        if status == "preparing":
            transaction.db.execute(FIRST_SIGN, (rollout_position,))
    own = {row[0] for row in rows}
    return [attempt_id for attempt_id in attempt_ids if attempt_id not in own]


def finished_among(db: sqlite3.Connection, rollout_ids: Sequence[str]) -> list[str]:
    """Return those of the rollouts that are terminal."""
    rows = db.execute(
        "SELECT rollout_id FROM rollout WHERE finished_at IS NOT NULL"
        " AND rollout_id IN (SELECT value FROM json_each(?))",
        (json_list(rollout_ids),),
    )
    return [row[0] for row in rows]


class AttemptDeadlines:
    """The open attempts of one transaction, for ``watchdog.sweep``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._read: dict[str, tuple[int, AttemptedRollout]] = {}

    def due(self, now: float, limit: int) -> Sequence[AttemptedRollout]:
        """Return attempts whose deadline has come, most overdue first."""
        rows = self._transaction.rows(
            f"SELECT {HELD_COLUMNS} FROM attempt a JOIN rollout r ON r.position = a.rollout"
            " WHERE a.deadline IS NOT NULL AND a.deadline <= ? ORDER BY a.deadline LIMIT ?",
            (now, limit),
        )
        held = held_from_rows(self._transaction.db, rows)
        positions = [row[NUM_ROLLOUT_COLUMNS - 1] for row in rows]
        self._read = {
            one.rollout.rollout_id: (position, one) for position, one in zip(positions, held, strict=True)
        }
        return held

    def save(self, held: AttemptedRollout) -> None:
        """Store an expired attempt and its rollout."""
        position, old = self._read[held.rollout.rollout_id]
        save_attempt(self._transaction, held.rollout.config, held.attempt)
        save_rollout(self._transaction, position, old.rollout, held.rollout)


def grant_grace(db: sqlite3.Connection, now: float) -> None:
    """Renew the leases of open attempts when a store opens: silence counts only while the store was there to listen."""
    db.execute("BEGIN IMMEDIATE")
    rows = db.execute(
        "SELECT a.position, a.started_at, r.config FROM attempt a JOIN rollout r ON r.position = a.rollout"
        " WHERE a.deadline IS NOT NULL AND a.lease IS NOT NULL"
    ).fetchall()
    for position, started_at, text in rows:
        config = config_from_text(text)
        lease = lifecycle.lease_end(config, now)
        due = lifecycle.next_deadline(config, started_at=started_at, lease=lease)
        db.execute("UPDATE attempt SET lease = ?, deadline = ? WHERE position = ?", (lease, due, position))
    db.execute("COMMIT")
