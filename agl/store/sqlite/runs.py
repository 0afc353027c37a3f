"""Runs and metrics in SQL."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

import orjson

from agl.errors import InvalidRequestError, NotFoundError
from agl.store.sqlite.rows import Row, insert_rows, json_text
from agl.store.sqlite.writer import Transaction
from agl.types import MetricPoint, Run, RunStatus

COLUMNS = "run_id, name, command, settings, git_commit, status, created_at, finished_at, position"


def add(
    transaction: Transaction,
    *,
    name: str,
    run_id: str | None,
    command: str,
    settings: Mapping[str, Any],
    git_commit: str | None,
) -> Run:
    """Open a run; a known id is answered with the run that it named first."""
    if run_id is not None:
        row = transaction.row(f"SELECT {COLUMNS} FROM run WHERE run_id = ?", (run_id,))
        if row is not None:
            return from_row(row)
    row = (
        run_id or transaction.new_id("run"),
        name,
        command,
        json_text(dict(settings), "settings of a run"),
        git_commit,
        "running",
        transaction.now,
        None,
        transaction.position(),
    )
    insert_rows(transaction.db, f"INSERT INTO run ({COLUMNS})", [row])
    return from_row(row)


def update(transaction: Transaction, run_id: str, status: RunStatus) -> Run:
    """Change a run's status; ``running`` opens it again."""
    if status not in get_args(RunStatus):
        raise InvalidRequestError(
            f"{status!r} is not a run's status; known: {', '.join(get_args(RunStatus))}"
        )
    finished_at = None if status == "running" else transaction.now
    row = transaction.row(
        f"UPDATE run SET status = ?, finished_at = ? WHERE run_id = ? RETURNING {COLUMNS}",
        (status, finished_at, run_id),
    )
    if row is None:
        raise NotFoundError(f"no run has the id {run_id!r}")
    return from_row(row)


def add_metrics(transaction: Transaction, run_id: str, step: int, values: Mapping[str, float]) -> None:
    """Store values of a step; a (name, step) stored again is replaced."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise InvalidRequestError(
                f"metric {name} of step {step} is {value}: only finite numbers are stored"
            )
    if transaction.row("SELECT 1 FROM run WHERE run_id = ?", (run_id,)) is None:
        raise NotFoundError(f"no run has the id {run_id!r}: add it before its metrics")
    insert_rows(
        transaction.db,
        "INSERT OR REPLACE INTO metric (run_id, step, name, value, time)",
        [(run_id, step, name, float(value), transaction.now) for name, value in values.items()],
    )


def from_row(row: Row) -> Run:
    """Return the run of ``COLUMNS``."""
    return Run(
        run_id=row[0],
        name=row[1],
        command=row[2],
        settings=orjson.loads(row[3]),
        git_commit=row[4],
        status=row[5],
        created_at=row[6],
        finished_at=row[7],
    )


def metric_from_row(row: Row) -> MetricPoint:
    """Return the point of (run_id, step, name, value, time)."""
    return MetricPoint(run_id=row[0], step=row[1], name=row[2], value=row[3], time=row[4])
