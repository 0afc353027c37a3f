"""The shorter lists use indexes."""

from __future__ import annotations

import sqlite3

from agl.store.sqlite import queries
from agl.types import AttemptQuery


def test_the_attempts_of_a_worker_need_no_sorting(db: sqlite3.Connection) -> None:
    statements: list[str] = []
    db.set_trace_callback(statements.append)
    queries.attempts(db, AttemptQuery(worker_id="w"))
    db.set_trace_callback(None)
    plan = str(db.execute(f"EXPLAIN QUERY PLAN {statements[0]}").fetchall())
    assert "attempt_worker" in plan
    assert "TEMP B-TREE" not in plan
