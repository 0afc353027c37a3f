"""Rollouts that pause before their next attempt, in SQL: those whose time has come join the queue."""

from __future__ import annotations

import sqlite3

from agl.store.sqlite.writer import Transaction

DUE = "SELECT position, run_id FROM rollout WHERE retry_at IS NOT NULL AND retry_at <= ? ORDER BY retry_at, position"
_JOIN = "UPDATE rollout SET queue_position = ?, retry_at = NULL WHERE position = ?"


def release_due(transaction: Transaction) -> None:
    """Let the rollouts whose pause is over join the queue's end, the most overdue first."""
    for position, run_id in transaction.rows(DUE, (transaction.now,)):
        transaction.db.execute(_JOIN, (transaction.position(), position))
        transaction.arrived.append(run_id)


def count_pausing(db: sqlite3.Connection, run_id: str | None) -> int:
    """Return how many rollouts (of the run) pause, from the index that holds only them."""
    sql = "SELECT count(*) FROM rollout INDEXED BY rollout_retry WHERE retry_at IS NOT NULL"
    if run_id is None:
        return int(db.execute(sql).fetchone()[0])
    return int(db.execute(f"{sql} AND run_id = ?", (run_id,)).fetchone()[0])
