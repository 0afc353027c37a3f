"""The shorter lists in SQL: attempts, metrics, workers, runs, resources."""

from __future__ import annotations

import sqlite3

from agl.store.sqlite import resources, runs, workers
from agl.store.sqlite.pages import Filter, Listing, each, page_of
from agl.store.sqlite.rows import ATTEMPT_COLUMNS, attempt_from_row
from agl.types import (
    Attempt,
    AttemptQuery,
    MetricPoint,
    MetricQuery,
    NamedResources,
    Page,
    ResourcesQuery,
    Run,
    RunQuery,
    Worker,
    WorkerQuery,
)


def attempts(db: sqlite3.Connection, query: AttemptQuery) -> Page[Attempt]:
    """List attempts in the order of their start."""
    filtered = Filter()
    if query.rollout_id is not None:
        filtered.add("a.rollout = (SELECT position FROM rollout WHERE rollout_id = ?)", query.rollout_id)
    filtered.equals("a.worker_id", query.worker_id)
    filtered.among("a.status", query.status)
    what = Listing(
        columns=f"r.rollout_id, {ATTEMPT_COLUMNS}",
        tables="attempt a JOIN rollout r ON r.position = a.rollout",
        keys=("a.position",),
        key_of=lambda row: row[-1:],
    )
    return page_of(db, what, query, filtered, each(lambda row: attempt_from_row(row[0], row[1:])))


def metrics(db: sqlite3.Connection, query: MetricQuery) -> Page[MetricPoint]:
    """List metric points of a run by step and name."""
    filtered = Filter()
    filtered.add("run_id = ?", query.run_id)
    filtered.among("name", query.names)
    if query.min_step is not None:
        filtered.add("step >= ?", query.min_step)
    what = Listing(
        columns="run_id, step, name, value, time",
        tables="metric",
        keys=("step", "name"),
        key_of=lambda row: row[1:3],
    )
    return page_of(db, what, query, filtered, each(runs.metric_from_row))


def worker_rows(db: sqlite3.Connection, query: WorkerQuery, now: float) -> Page[Worker]:
    """List workers in the order of their registration."""
    filtered = Filter(values=[workers.alive_since(now)])
    filtered.among("w.status", query.status)
    what = Listing(
        columns=workers.COLUMNS, tables=workers.WORKERS, keys=("w.position",), key_of=lambda row: row[-1:]
    )
    return page_of(db, what, query, filtered, each(workers.from_row))


def run_rows(db: sqlite3.Connection, query: RunQuery) -> Page[Run]:
    """List runs in the order of their creation."""
    filtered = Filter()
    filtered.equals("name", query.name)
    filtered.among("status", query.status)
    what = Listing(columns=runs.COLUMNS, tables="run", keys=("position",), key_of=lambda row: row[-1:])
    return page_of(db, what, query, filtered, each(runs.from_row))


def resources_rows(db: sqlite3.Connection, query: ResourcesQuery) -> Page[NamedResources]:
    """List resources in the order of their versions."""
    filtered = Filter()
    filtered.equals("run_id", query.run_id)
    what = Listing(
        columns=resources.COLUMNS, tables="resources", keys=("version",), key_of=lambda row: row[1:2]
    )
    return page_of(db, what, query, filtered, resources.from_rows)
