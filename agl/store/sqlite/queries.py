"""Lists in SQL: filters, orders and keyset pages. A page continues behind the sort key of the last row it showed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agl.errors import InvalidRequestError
from agl.store.paging import cursor_key, cursor_text
from agl.store.sqlite import resources, runs, workers
from agl.store.sqlite.blobs import has_marks, stowed_already
from agl.store.sqlite.packed import PACKED_KEYS, entry_from_text
from agl.store.sqlite.rows import (
    ATTEMPT_COLUMNS,
    ROLLOUT_COLUMNS,
    SPAN_COLUMNS,
    SPAN_TABLES,
    Row,
    attempt_from_row,
    json_list,
    json_text,
    rollouts_from_rows,
    spans_from_rows,
    stored_hex,
)
from agl.types import (
    Attempt,
    AttemptQuery,
    MetricPoint,
    MetricQuery,
    NamedResources,
    Page,
    ResourcesQuery,
    Rollout,
    RolloutQuery,
    Run,
    RunQuery,
    Span,
    SpanQuery,
    Worker,
    WorkerQuery,
)
from agl.types.query import ListQuery

T = TypeVar("T")
Make = Callable[[sqlite3.Connection, Sequence[Row]], list[T]]
"""Builds the records of a page, all at once: what they share elsewhere is read in one query."""
_SORT_COLUMN = {"created_at": 13, "started_at": 14, "finished_at": 15, "reward": 10}
"""Where the sort keys stand in ``ROLLOUT_COLUMNS``."""


@dataclass(slots=True)
class _Filter:
    """Conditions joined with AND, and their values."""

    conditions: list[str] = field(default_factory=list[str])
    values: list[Any] = field(default_factory=list[Any])

    def add(self, condition: str, *values: Any) -> None:
        """Add a condition with its values."""
        self.conditions.append(condition)
        self.values.extend(values)

    def equals(self, column: str, value: object) -> None:
        """Compare a column unless the value is None."""
        if value is not None:
            self.add(f"{column} = ?", value)

    def among(self, column: str, values: Sequence[str] | None) -> None:
        """Match any of the values unless they are None."""
        if values is not None:
            self.add(f"{column} IN (SELECT value FROM json_each(?))", json_list(values))

    def where(self) -> str:
        """Return the clause."""
        return f"WHERE {' AND '.join(self.conditions)}" if self.conditions else ""


@dataclass(slots=True, kw_only=True)
class _List:
    """A list to read: its columns and tables, and the columns that order it, whose values are never NULL."""

    columns: str
    tables: str
    keys: tuple[str, ...]
    key_of: Callable[[Row], Sequence[Any]]


def _page(db: sqlite3.Connection, what: _List, query: ListQuery, filtered: _Filter, make: Make[T]) -> Page[T]:
    order = f"{','.join(what.keys)} {query.order}"
    if query.cursor is not None:
        after = cursor_key(query.cursor, order, len(what.keys))
        sign = ">" if query.order == "asc" else "<"
        filtered.add(f"({', '.join(what.keys)}) {sign} ({', '.join('?' * len(after))})", *after)
    by = ", ".join(f"{key} {query.order}" for key in what.keys)
    return _read(db, what, query, filtered, make, by=by, order=order)


def _read(
    db: sqlite3.Connection,
    what: _List,
    query: ListQuery,
    filtered: _Filter,
    make: Make[T],
    *,
    by: str,
    order: str,
) -> Page[T]:
    sql = f"SELECT {what.columns} FROM {what.tables} {filtered.where()} ORDER BY {by} LIMIT ?"
    rows: list[Row] = db.execute(sql, (*filtered.values, query.limit + 1)).fetchall()
    more = len(rows) > query.limit
    rows = rows[: query.limit]
    cursor = cursor_text(order, what.key_of(rows[-1])) if more else None
    return Page(items=make(db, rows), next_cursor=cursor)


def rollouts(db: sqlite3.Connection, query: RolloutQuery) -> Page[Rollout]:
    """List rollouts; where the sort key is missing they come last in both orders."""
    filtered = _Filter()
    filtered.among("r.rollout_id", query.rollout_ids)
    filtered.equals("r.run_id", query.run_id)
    filtered.among("r.status", query.status)
    filtered.equals("r.mode", query.mode)
    filtered.equals("r.group_id", query.group_id)
    filtered.equals("r.resources_id", query.resources_id)
    if query.worker_id is not None:
        filtered.add("r.position IN (SELECT rollout FROM attempt WHERE worker_id = ?)", query.worker_id)
    if query.created_after is not None:
        filtered.add("r.created_at > ?", query.created_after)
    if query.created_before is not None:
        filtered.add("r.created_at < ?", query.created_before)
    key, column = f"r.{query.sort_by}", _SORT_COLUMN[query.sort_by]
    order = f"{query.sort_by} {query.order}"
    if query.cursor is not None:
        value, position = cursor_key(query.cursor, order, 2)
        sign = ">" if query.order == "asc" else "<"
        if value is None:
            filtered.add(f"{key} IS NULL AND r.position {sign} ?", position)
        elif query.sort_by == "created_at":
            filtered.add(f"({key}, r.position) {sign} (?, ?)", value, position)
        else:
            filtered.add(f"(({key}, r.position) {sign} (?, ?) OR {key} IS NULL)", value, position)
    what = _List(
        columns=ROLLOUT_COLUMNS, tables="rollout r", keys=(), key_of=lambda row: (row[column], row[-1])
    )
    by = f"{key} {query.order} NULLS LAST, r.position {query.order}"
    return _read(db, what, query, filtered, rollouts_from_rows, by=by, order=order)


def attempts(db: sqlite3.Connection, query: AttemptQuery) -> Page[Attempt]:
    """List attempts in the order of their start."""
    filtered = _Filter()
    if query.rollout_id is not None:
        filtered.add("a.rollout = (SELECT position FROM rollout WHERE rollout_id = ?)", query.rollout_id)
    filtered.equals("a.worker_id", query.worker_id)
    filtered.among("a.status", query.status)
    what = _List(
        columns=f"r.rollout_id, {ATTEMPT_COLUMNS}",
        tables="attempt a JOIN rollout r ON r.position = a.rollout",
        keys=("a.position",),
        key_of=lambda row: row[-1:],
    )
    return _page(db, what, query, filtered, _each(lambda row: attempt_from_row(row[0], row[1:])))


def spans(db: sqlite3.Connection, query: SpanQuery) -> Page[Span]:
    """List spans: those of a rollout or an attempt by attempt and sequence id, all others as they came."""
    filtered = _Filter()
    by_number = query.rollout_id is not None or query.attempt_id is not None
    if query.rollout_id is not None:
        filtered.add("s.rollout = (SELECT position FROM rollout WHERE rollout_id = ?)", query.rollout_id)
    if query.attempt_id == "latest":
        if query.rollout_id is None:
            raise InvalidRequestError(
                "attempt_id 'latest' names the newest attempt of a rollout: give rollout_id too"
            )
        filtered.add(
            "s.attempt = (SELECT max(b.position) FROM attempt b JOIN rollout q ON q.position = b.rollout"
            " WHERE q.rollout_id = ?)",
            query.rollout_id,
        )
    elif query.attempt_id is not None:
        filtered.add("s.rollout = (SELECT rollout FROM attempt WHERE attempt_id = ?)", query.attempt_id)
        filtered.add("s.attempt = (SELECT position FROM attempt WHERE attempt_id = ?)", query.attempt_id)
    filtered.equals("s.trace_id", None if query.trace_id is None else stored_hex(query.trace_id))
    filtered.equals("s.run_id", query.run_id)
    filtered.equals("s.name", query.name)
    if query.name_prefix:
        end = _prefix_end(query.name_prefix)
        filtered.add("s.name >= ?", query.name_prefix)
        if end is not None:
            filtered.add("s.name < ?", end)
    for name, value in (query.attributes or {}).items():
        _attribute_equals(db, filtered, name, value)
    what = _List(
        columns=SPAN_COLUMNS,
        tables=SPAN_TABLES,
        keys=("s.attempt", "s.sequence_id") if by_number else ("s.position",),
        key_of=(lambda row: (row[-2], row[-3])) if by_number else (lambda row: row[-1:]),
    )
    return _page(db, what, query, filtered, spans_from_rows)


def metrics(db: sqlite3.Connection, query: MetricQuery) -> Page[MetricPoint]:
    """List metric points of a run by step and name."""
    filtered = _Filter()
    filtered.add("run_id = ?", query.run_id)
    filtered.among("name", query.names)
    if query.min_step is not None:
        filtered.add("step >= ?", query.min_step)
    what = _List(
        columns="run_id, step, name, value, time",
        tables="metric",
        keys=("step", "name"),
        key_of=lambda row: row[1:3],
    )
    return _page(db, what, query, filtered, _each(runs.metric_from_row))


def worker_rows(db: sqlite3.Connection, query: WorkerQuery, now: float) -> Page[Worker]:
    """List workers in the order of their registration."""
    filtered = _Filter(values=[workers.alive_since(now)])
    filtered.among("w.status", query.status)
    what = _List(
        columns=workers.COLUMNS, tables=workers.WORKERS, keys=("w.position",), key_of=lambda row: row[-1:]
    )
    return _page(db, what, query, filtered, _each(workers.from_row))


def run_rows(db: sqlite3.Connection, query: RunQuery) -> Page[Run]:
    """List runs in the order of their creation."""
    filtered = _Filter()
    filtered.equals("name", query.name)
    filtered.among("status", query.status)
    what = _List(columns=runs.COLUMNS, tables="run", keys=("position",), key_of=lambda row: row[-1:])
    return _page(db, what, query, filtered, _each(runs.from_row))


def resources_rows(db: sqlite3.Connection, query: ResourcesQuery) -> Page[NamedResources]:
    """List resources in the order of their versions."""
    filtered = _Filter()
    filtered.equals("run_id", query.run_id)
    what = _List(
        columns=resources.COLUMNS, tables="resources", keys=("version",), key_of=lambda row: row[1:2]
    )
    return _page(db, what, query, filtered, resources.from_rows)


def _each(make: Callable[[Row], T]) -> Make[T]:
    return lambda _, rows: [make(row) for row in rows]


def _attribute_equals(db: sqlite3.Connection, filtered: _Filter, name: str, value: object) -> None:
    """Compare as JSON: true is not 1, 1 is 1.0, and objects are equal whatever the order of their keys."""
    one = "EXISTS (SELECT 1 FROM json_each(s.attributes) j WHERE j.key = ? AND"
    if value is None or isinstance(value, bool):
        filtered.add(f"{one} j.type = ?)", name, {None: "null", True: "true", False: "false"}[value])
        return
    if isinstance(value, int | float):
        filtered.add(f"{one} j.type IN ('integer', 'real') AND j.atom = ?)", name, value)
        return
    wanted = json_text(value, f"attribute {name}")
    if isinstance(value, str) and name.startswith(PACKED_KEYS) and entry_from_text(value) is not None:
        filtered.add(f"{one} j.type = 'text' AND packed_text(s.packed, j.atom) = ?)", name, value)
        return
    if has_marks(wanted):
        found = stowed_already(db, value)
        if found is None:
            filtered.add("0")  # a text that no row refers to
            return
        value, wanted = found[0], json_text(found[0], f"attribute {name}")
    if isinstance(value, str):
        filtered.add(f"{one} j.type = 'text' AND j.atom = ?)", name, value)
    else:
        filtered.add(f"{one} j.type IN ('array', 'object') AND json_equal(j.value, ?))", name, wanted)


def _prefix_end(prefix: str) -> str | None:
    """Return the first text behind all texts that begin with ``prefix``, None when there is none."""
    for cut in range(len(prefix), 0, -1):
        point = ord(prefix[cut - 1]) + 1
        if point == 0xD800:  # surrogates are no characters
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[: cut - 1] + chr(point)
    return None
