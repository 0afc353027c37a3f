"""Counts kept beside the rows, so that statistics cost the same for ten rollouts and for a million.

Triggers of the schema keep those of rollouts, attempts and of what is deleted; only new spans are counted here, once an
operation.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from agl.store.lifecycle import ATTEMPT_MOVES, ROLLOUT_MOVES
from agl.store.sqlite.pausing import count_pausing

NO_RUN = b""
"""Stands for the run of what belongs to none; a run's id is text."""
_ADD = (
    "INSERT INTO tally (what, run, key, number) VALUES ('spans', ?, '', ?)"
    " ON CONFLICT (what, run, key) DO UPDATE SET number = number + excluded.number"
)


def add_spans(db: sqlite3.Connection, run_ids: Iterable[str | None]) -> None:
    """Count new spans, given by their runs."""
    for run_id, number in Counter(run_ids).items():
        db.execute(_ADD, (NO_RUN if run_id is None else run_id, number))


def count_rollouts(db: sqlite3.Connection, run_id: str | None, status: Sequence[str] | None) -> int:
    """Return how many rollouts (of the run) have one of the statuses."""
    counts = _counts(db, "rollouts", run_id)
    return sum(number for key, number in counts.items() if status is None or key in status)


def statistics(db: sqlite3.Connection, run_id: str | None) -> dict[str, Any]:
    """Return counts, of one run or of all."""
    if run_id is None:
        sql = "SELECT (SELECT count(*) FROM resources), (SELECT count(*) FROM worker), (SELECT count(*) FROM run)"
        resources, workers, runs = db.execute(sql).fetchone()
    else:
        workers = sum(number > 0 for number in _counts(db, "workers", run_id).values())
        sql = "SELECT (SELECT count(*) FROM resources WHERE run_id = ?1), (SELECT count(*) FROM run WHERE run_id = ?1)"
        resources, runs = db.execute(sql, (run_id,)).fetchone()
    return {
        "rollouts": dict.fromkeys(ROLLOUT_MOVES, 0) | _counts(db, "rollouts", run_id),
        "pausing": count_pausing(db, run_id),
        "attempts": dict.fromkeys(ATTEMPT_MOVES, 0) | _counts(db, "attempts", run_id),
        "spans": sum(_counts(db, "spans", run_id).values()),
        "resources": resources,
        "workers": workers,
        "runs": runs,
    }


def _counts(db: sqlite3.Connection, what: str, run_id: str | None) -> dict[str, int]:
    if run_id is None:
        sql = "SELECT key, sum(number) FROM tally WHERE what = ? GROUP BY key"
        return dict(db.execute(sql, (what,)).fetchall())
    sql = "SELECT key, number FROM tally WHERE what = ? AND run = ?"
    return dict(db.execute(sql, (what, run_id)).fetchall())
