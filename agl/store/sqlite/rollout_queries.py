"""Lists of rollouts in SQL: every order and filter from an index, so that a page costs what it shows."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from agl.store.lifecycle import ROLLOUT_MOVES
from agl.store.paging import cursor_key
from agl.store.sqlite import tally
from agl.store.sqlite.blobs import Row
from agl.store.sqlite.pages import Filter, Listing, made_page, read_page
from agl.store.sqlite.rows import ROLLOUT_COLUMNS, rollouts_from_rows
from agl.types import Page, Rollout, RolloutQuery

_SORT_COLUMN = {"created_at": 13, "started_at": 14, "finished_at": 15, "reward": 10}
"""Where the sort keys stand in ``ROLLOUT_COLUMNS``."""
_WORKED = "EXISTS (SELECT 1 FROM attempt a WHERE a.rollout = r.position AND +a.worker_id = ?)"
_FIRST_OF_WORKER = (
    "NOT EXISTS (SELECT 1 FROM attempt b WHERE b.rollout = a.rollout AND +b.worker_id = a.worker_id"
    " AND b.sequence_id < a.sequence_id)"
)


def rollouts(db: sqlite3.Connection, query: RolloutQuery) -> Page[Rollout]:
    """List rollouts; where the sort key is missing they come last in both orders."""
    chosen = query.run_id is not None or query.status is not None or query.worker_id is not None
    few = query.rollout_ids is not None or query.group_id is not None
    if chosen and not few and query.sort_by == "created_at":
        return _of_worker(db, query) if _worker_has_fewer(db, query) else _by_status(db, query)
    filtered = _filter(query)
    filtered.among("r.rollout_id", query.rollout_ids)
    filtered.equals("r.run_id", query.run_id)
    filtered.among("r.status", query.status)
    filtered.equals("r.group_id", query.group_id)
    if query.worker_id is not None:
        filtered.add("r.position IN (SELECT rollout FROM attempt WHERE worker_id = ?)", query.worker_id)
    key, column = f"r.{query.sort_by}", _SORT_COLUMN[query.sort_by]
    _continue(filtered, query, key, "r.position")
    what = Listing(
        columns=ROLLOUT_COLUMNS, tables="rollout r", keys=(), key_of=lambda row: (row[column], row[-1])
    )
    by = f"{key} {query.order} NULLS LAST, r.position {query.order}"
    return read_page(db, what, query, filtered, rollouts_from_rows, by=by, order=_order(query))


def _worker_has_fewer(db: sqlite3.Connection, query: RolloutQuery) -> bool:
    """Return whether the worker's rollouts are fewer than those of the run and status, as far as the index counts."""
    if query.worker_id is None:
        return False
    if query.run_id is None and query.status is None:
        return True
    others = tally.count_rollouts(db, query.run_id, query.status)
    sql = "SELECT count(*) FROM (SELECT 1 FROM attempt WHERE worker_id = ? LIMIT ?)"
    return db.execute(sql, (query.worker_id, others + 1)).fetchone()[0] <= others


def _of_worker(db: sqlite3.Connection, query: RolloutQuery) -> Page[Rollout]:
    """Walk the worker's attempts in the order of their rollouts."""
    filtered = _filter(query)
    filtered.equals("a.worker_id", query.worker_id)
    filtered.equals("r.run_id", query.run_id)
    filtered.among("r.status", query.status)
    filtered.add(_FIRST_OF_WORKER)
    _continue(filtered, query, "a.rollout_created_at", "a.rollout")
    rows = db.execute(
        f"SELECT {ROLLOUT_COLUMNS} FROM attempt a INDEXED BY attempt_worker_rollout"
        f" CROSS JOIN rollout r ON r.position = a.rollout {filtered.where()}"
        f" ORDER BY a.rollout_created_at {query.order}, a.rollout {query.order} LIMIT ?",
        (*filtered.values, query.limit + 1),
    ).fetchall()
    return _page(db, rows, query)


def _by_status(db: sqlite3.Connection, query: RolloutQuery) -> Page[Rollout]:
    """Merge the indexes of the statuses, each in the order of the list; a run alone is the run with any status."""
    values: list[Any] = []
    parts: list[str] = []
    down = query.order
    for status in dict.fromkeys(ROLLOUT_MOVES if query.status is None else query.status):
        filtered = _filter(query)
        filtered.equals("r.run_id", query.run_id)
        filtered.equals("r.status", status)
        if query.worker_id is not None:
            filtered.add(_WORKED, query.worker_id)
        _continue(filtered, query, "r.created_at", "r.position")
        parts.append(
            f"SELECT * FROM (SELECT r.created_at AS created_at, r.position AS position FROM rollout r"
            f" {filtered.where()} ORDER BY r.created_at {down}, r.position {down} LIMIT ?)"
        )
        values += (*filtered.values, query.limit + 1)
    if not parts:
        return Page(items=[])
    merged = f"{' UNION ALL '.join(parts)} ORDER BY created_at {down}, position {down} LIMIT ?"
    rows = db.execute(
        f"SELECT {ROLLOUT_COLUMNS} FROM ({merged}) k CROSS JOIN rollout r ON r.position = k.position"
        f" ORDER BY k.created_at {down}, k.position {down}",
        (*values, query.limit + 1),
    ).fetchall()
    return _page(db, rows, query)


def _filter(query: RolloutQuery) -> Filter:
    """Return the conditions that no index serves."""
    filtered = Filter()
    filtered.equals("r.mode", query.mode)
    filtered.equals("r.resources_id", query.resources_id)
    if query.created_after is not None:
        filtered.add("r.created_at > ?", query.created_after)
    if query.created_before is not None:
        filtered.add("r.created_at < ?", query.created_before)
    return filtered


def _continue(filtered: Filter, query: RolloutQuery, key: str, position_column: str) -> None:
    """Begin behind the cursor."""
    if query.cursor is None:
        return
    value, position = cursor_key(query.cursor, _order(query), 2)
    sign = ">" if query.order == "asc" else "<"
    if value is None:
        filtered.add(f"{key} IS NULL AND {position_column} {sign} ?", position)
    elif query.sort_by == "created_at":
        filtered.add(f"({key}, {position_column}) {sign} (?, ?)", value, position)
    else:
        filtered.add(f"(({key}, {position_column}) {sign} (?, ?) OR {key} IS NULL)", value, position)


def _order(query: RolloutQuery) -> str:
    return f"{query.sort_by} {query.order}"


def _page(db: sqlite3.Connection, rows: Sequence[Row], query: RolloutQuery) -> Page[Rollout]:
    return made_page(
        db,
        rows,
        query,
        order=_order(query),
        key_of=lambda row: (row[_SORT_COLUMN["created_at"]], row[-1]),
        make=rollouts_from_rows,
    )
