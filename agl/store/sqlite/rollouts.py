"""Rollouts in SQL: enqueue, claim, change, cancel. What may happen is decided by ``lifecycle``."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import orjson

from agl.errors import ConflictError
from agl.store import lifecycle
from agl.store.cutting import has_marks
from agl.store.sqlite.blobs import stow
from agl.store.sqlite.held import find_rollout, insert_attempt, latest_attempt, save_attempt, save_rollout
from agl.store.sqlite.resources import latest_resources_id, require_resources
from agl.store.sqlite.rows import (
    HELD_COLUMNS,
    ROLLOUT_COLUMNS,
    ROLLOUT_JSON,
    config_text,
    held_from_rows,
    insert_rows,
    json_list,
    json_text,
    rollout_from_row,
    rollouts_from_rows,
)
from agl.store.sqlite.writer import Transaction
from agl.types import Attempt, AttemptedRollout, Rollout, RolloutRequest

_INSERT = (
    "INSERT INTO rollout (rollout_id, run_id, task, mode, group_id, resources_id, config, metadata, priority, status,"
    " reward, reward_dimensions, error, created_at, started_at, finished_at, num_attempts, retry_at, position,"
    " queue_position)"
)
_CLAIM = (
    "UPDATE rollout SET status = ?, resources_id = ?, started_at = ?, num_attempts = ?, queue_position = NULL,"
    " retry_at = NULL"
    " WHERE position = ?"
)
_WAS_ASKED = "SELECT 1 FROM attempt WHERE request_id = ? AND worker_id = ? LIMIT 1"
_DELETE_UNUSED = (
    "DELETE FROM attempt WHERE attempt_id = ? AND status = 'preparing' AND next_span = 1"
    " RETURNING rollout, sequence_id, taken_from, pinned"
)
_PUT_BACK = (
    "UPDATE rollout SET status = ?, num_attempts = ?, started_at = iif(?, started_at, NULL),"
    " resources_id = iif(?, NULL, resources_id), queue_position = coalesce(?, position) WHERE position = ?"
    " RETURNING rollout_id, run_id"
)
_ORDER = "ORDER BY r.priority DESC, r.queue_position LIMIT ?"


def enqueue(transaction: Transaction, requests: Sequence[RolloutRequest]) -> list[Rollout]:
    """Append to the queue; known ids are answered with the rollout that they named first."""
    for resources_id in {request.resources_id for request in requests} - {None}:
        require_resources(transaction, str(resources_id))
    given = [request.rollout_id for request in requests if request.rollout_id is not None]
    known = rollouts_by_id(transaction.db, given) if given else {}
    answers: list[Rollout] = []
    rows: list[tuple[Any, ...]] = []
    for request in requests:
        rollout_id = request.rollout_id or transaction.new_id("ro")
        rollout = known.get(rollout_id)
        if rollout is None:
            position = transaction.position()
            row = _row_of(request, rollout_id, position, transaction.now)
            rollout = known[rollout_id] = rollout_from_row(row)
            rows.append((*row, position))
        answers.append(rollout)
    insert(transaction, rows)
    transaction.arrived.extend(row[1] for row in rows)
    return answers


def claim(
    transaction: Transaction,
    *,
    worker_id: str,
    limit: int,
    request_id: str | None,
    run_id: str | None,
) -> list[AttemptedRollout]:
    """Hand out up to ``limit`` queued rollouts; a known ``request_id`` of the worker answers its first claim."""
    if request_id is not None and transaction.row(_WAS_ASKED, (request_id, worker_id)):
        claimed = transaction.rows(
            f"SELECT {HELD_COLUMNS} FROM attempt a JOIN rollout r ON r.position = a.rollout"
            " WHERE a.request_id = ? AND a.worker_id = ? ORDER BY a.position",
            (request_id, worker_id),
        )
        return held_from_rows(transaction.db, claimed)
    if run_id is None:
        rows = transaction.rows(
            f"SELECT {ROLLOUT_COLUMNS} FROM rollout r WHERE r.queue_position IS NOT NULL {_ORDER}", (limit,)
        )
    else:
        rows = transaction.rows(
            f"SELECT {ROLLOUT_COLUMNS} FROM rollout r WHERE r.queue_position IS NOT NULL AND r.run_id = ? {_ORDER}",
            (run_id, limit),
        )
    transaction.db.execute(
        "UPDATE worker SET last_heartbeat_at = ? WHERE worker_id = ?", (transaction.now, worker_id)
    )
    latest: dict[str | None, str | None] = {}
    held: list[AttemptedRollout] = []
    for row, rollout in zip(rows, rollouts_from_rows(transaction.db, rows), strict=True):
        if rollout.resources_id is None and rollout.run_id not in latest:
            latest[rollout.run_id] = latest_resources_id(transaction, rollout.run_id)
        held.append(
            _hand_out(
                transaction,
                rollout,
                row[-1],
                worker_id=worker_id,
                resources_id=latest.get(rollout.run_id),
                request_id=request_id,
            )
        )
    return held


def unclaim(transaction: Transaction, attempt_ids: Sequence[str]) -> list[str]:
    """Take attempts back that nobody received: they vanish, and their rollouts stand in the queue where they stood.

    Returns:
        Ids of the rollouts that went back; an attempt that shows a sign of life stays.
    """
    back: list[str] = []
    for attempt_id in attempt_ids:
        gone = transaction.row(_DELETE_UNUSED, (attempt_id,))
        if gone is None:
            continue
        position, sequence_id, taken_from, pinned = gone
        retry = sequence_id > 1
        values = ("requeuing" if retry else "pending", sequence_id - 1, retry, pinned, taken_from, position)
        row = transaction.row(_PUT_BACK, values)
        assert row is not None, "an attempt has a rollout"
        back.append(row[0])
        transaction.arrived.append(row[1])
    return back


def undo_claim(transaction: Transaction, worker_id: str, request_id: str) -> list[str]:
    """Take a claim back by its request; return the rollouts that went back."""
    rows = transaction.rows(
        "SELECT attempt_id FROM attempt WHERE request_id = ? AND worker_id = ? ORDER BY position",
        (request_id, worker_id),
    )
    return unclaim(transaction, [row[0] for row in rows])


def start_rollout(
    transaction: Transaction, request: RolloutRequest, worker_id: str | None
) -> AttemptedRollout:
    """Make a rollout and its first attempt at once."""
    if request.rollout_id is not None and rollouts_by_id(transaction.db, [request.rollout_id]):
        raise ConflictError(f"rollout {request.rollout_id} exists: use start_attempt to execute it")
    if request.resources_id is not None:
        require_resources(transaction, request.resources_id)
    rollout_id = request.rollout_id or transaction.new_id("ro")
    position = transaction.position()
    row = _row_of(request, rollout_id, position, transaction.now)
    insert(transaction, [(*row, None)])
    return _start(transaction, rollout_from_row(row), position, worker_id)


def start_attempt(transaction: Transaction, rollout_id: str, worker_id: str | None) -> AttemptedRollout:
    """Open a new attempt of a queued rollout."""
    rollout, position = find_rollout(transaction, rollout_id)
    return _start(transaction, rollout, position, worker_id)


def change(transaction: Transaction, rollout_id: str, wanted: lifecycle.RolloutChange) -> Rollout:
    """Change a rollout as ``lifecycle.changed`` says."""
    rollout, position = find_rollout(transaction, rollout_id)
    if wanted.resources_id is not None:
        require_resources(transaction, wanted.resources_id)
    attempt = latest_attempt(transaction, position, rollout_id)
    new_rollout, new_attempt = lifecycle.changed(rollout, attempt, wanted, now=transaction.now)
    return _store(transaction, position, rollout, new_rollout, old_attempt=attempt, new_attempt=new_attempt)


def cancel(transaction: Transaction, rollout_id: str) -> Rollout:
    """Cancel a rollout and its attempt."""
    rollout, position = find_rollout(transaction, rollout_id)
    attempt = latest_attempt(transaction, position, rollout_id)
    new_rollout, new_attempt = lifecycle.cancelled(rollout, attempt, now=transaction.now)
    return _store(transaction, position, rollout, new_rollout, old_attempt=attempt, new_attempt=new_attempt)


def insert(transaction: Transaction, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write rows of ``ROLLOUT_COLUMNS`` and the place in the queue, their long texts apart."""
    new = [list(row) for row in rows]
    long = [(row, column) for row in new for column in ROLLOUT_JSON if has_marks(row[column])]
    if long:
        stowed = stow(transaction.db, [orjson.loads(row[column]) for row, column in long])
        for (row, column), value in zip(long, stowed, strict=True):
            row[column] = json_text(value, f"rollout {row[0]}")
    insert_rows(transaction.db, _INSERT, new)


def rollouts_by_id(db: sqlite3.Connection, rollout_ids: Sequence[str]) -> dict[str, Rollout]:
    """Return those of the rollouts that exist."""
    rows = db.execute(
        f"SELECT {ROLLOUT_COLUMNS} FROM rollout r WHERE r.rollout_id IN (SELECT value FROM json_each(?))",
        (json_list(rollout_ids),),
    )
    return {one.rollout_id: one for one in rollouts_from_rows(db, rows.fetchall())}


def _store(
    transaction: Transaction,
    position: int,
    old: Rollout,
    new: Rollout,
    *,
    old_attempt: Attempt | None,
    new_attempt: Attempt | None,
) -> Rollout:
    if new_attempt is not None and new_attempt is not old_attempt:
        save_attempt(transaction, new.config, new_attempt)
    if new is not old:
        save_rollout(transaction, position, old, new)
    return new


def _start(
    transaction: Transaction, rollout: Rollout, position: int, worker_id: str | None
) -> AttemptedRollout:
    latest = latest_resources_id(transaction, rollout.run_id) if rollout.resources_id is None else None
    return _hand_out(
        transaction, rollout, position, worker_id=worker_id, resources_id=latest, request_id=None
    )


def _hand_out(
    transaction: Transaction,
    rollout: Rollout,
    position: int,
    *,
    worker_id: str | None,
    resources_id: str | None,
    request_id: str | None,
) -> AttemptedRollout:
    held = lifecycle.claimed(
        rollout,
        attempt_id=transaction.new_id("at"),
        worker_id=worker_id,
        resources_id=resources_id,
        now=transaction.now,
    )
    new = held.rollout
    pinned = rollout.resources_id is None and new.resources_id is not None
    insert_attempt(transaction, position, held, request_id=request_id, pinned=pinned)
    transaction.db.execute(_CLAIM, (new.status, new.resources_id, new.started_at, new.num_attempts, position))
    return held


def _row_of(request: RolloutRequest, rollout_id: str, position: int, now: float) -> tuple[Any, ...]:
    return (
        rollout_id,
        request.run_id,
        json_text(request.task, f"task of rollout {rollout_id}"),
        request.mode,
        request.group_id,
        request.resources_id,
        config_text(request.config),
        json_text(request.metadata, f"metadata of rollout {rollout_id}"),
        request.priority,
        "pending",
        None,
        "{}",
        None,
        now,
        None,
        None,
        0,
        None,
        position,
    )
