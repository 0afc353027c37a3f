"""A rollout and its attempt in SQL: find them, and store what ``lifecycle`` made of them."""

from __future__ import annotations

from agl.errors import NotFoundError
from agl.store import lifecycle
from agl.store.cutting import has_marks
from agl.store.sqlite.blobs import release, stow
from agl.store.sqlite.rows import (
    ATTEMPT_COLUMNS,
    ROLLOUT_COLUMNS,
    attempt_from_row,
    config_text,
    error_text,
    json_text,
    rollouts_from_rows,
)
from agl.store.sqlite.writer import Transaction
from agl.types import Attempt, AttemptedRollout, Rollout, RolloutConfig

_UPDATE_ROLLOUT = (
    "UPDATE rollout SET status = ?, resources_id = ?, config = ?, priority = ?, reward = ?,"
    " reward_dimensions = ?, error = ?, started_at = ?, finished_at = ?, num_attempts = ?, queue_position = ?,"
    " retry_at = ?"
    " WHERE position = ?"
)
_INSERT_ATTEMPT = (
    "INSERT INTO attempt (attempt_id, rollout, sequence_id, worker_id, status, started_at, last_heartbeat_at, lease,"
    " deadline, request_id, position, pinned, rollout_created_at, taken_from)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT queue_position FROM rollout WHERE position = ?))"
)
_UPDATE_ATTEMPT = (
    "UPDATE attempt SET worker_id = ?, status = ?, last_heartbeat_at = ?, finished_at = ?, error = ?, lease = ?,"
    " deadline = ?, ended_by = ? WHERE attempt_id = ?"
)


def find_rollout(transaction: Transaction, rollout_id: str) -> tuple[Rollout, int]:
    """Return a rollout and its position. NotFoundError for an unknown id."""
    row = transaction.row(f"SELECT {ROLLOUT_COLUMNS} FROM rollout r WHERE r.rollout_id = ?", (rollout_id,))
    if row is None:
        raise NotFoundError(f"no rollout has the id {rollout_id!r}")
    return rollouts_from_rows(transaction.db, [row])[0], row[-1]


def latest_attempt(transaction: Transaction, rollout_position: int, rollout_id: str) -> Attempt | None:
    """Return a rollout's newest attempt."""
    row = transaction.row(
        f"SELECT {ATTEMPT_COLUMNS} FROM attempt a WHERE a.rollout = ? ORDER BY a.sequence_id DESC LIMIT 1",
        (rollout_position,),
    )
    return None if row is None else attempt_from_row(rollout_id, row)


def save_rollout(transaction: Transaction, position: int, old: Rollout, new: Rollout) -> None:
    """Store what changed on a rollout; one that waits again joins the queue's end, unless it pauses first."""
    place: int | None = None
    if new.status in lifecycle.QUEUED:
        if old.status in lifecycle.QUEUED:
            found = transaction.row("SELECT queue_position FROM rollout WHERE position = ?", (position,))
            assert found is not None
            place = found[0]
        elif new.retry_at is None:
            place = transaction.position()
            transaction.arrived.append(new.run_id)
    elif lifecycle.is_terminal(new.status) and not lifecycle.is_terminal(old.status):
        transaction.finished.append(new.rollout_id)
    values = (
        new.status,
        new.resources_id,
        config_text(new.config),
        new.priority,
        new.reward,
        json_text(new.reward_dimensions, f"reward_dimensions of rollout {new.rollout_id}"),
        error_text(new.error),
        new.started_at,
        new.finished_at,
        new.num_attempts,
        place,
        new.retry_at,
        position,
    )
    transaction.db.execute(_UPDATE_ROLLOUT, values)
    if new.metadata is not old.metadata:
        _save_metadata(transaction, position, new)


def _save_metadata(transaction: Transaction, position: int, new: Rollout) -> None:
    what = f"metadata of rollout {new.rollout_id}"
    text = json_text(new.metadata, what)
    if has_marks(text):
        text = json_text(stow(transaction.db, [new.metadata])[0], what)
    before = transaction.row("SELECT metadata FROM rollout WHERE position = ?", (position,))
    assert before is not None
    transaction.db.execute("UPDATE rollout SET metadata = ? WHERE position = ?", (text, position))
    release(transaction.db, before)


def insert_attempt(
    transaction: Transaction,
    rollout_position: int,
    held: AttemptedRollout,
    *,
    request_id: str | None,
    pinned: bool,
) -> None:
    """Store a new attempt, and what taking it back would restore: call it while the rollout stands in the queue."""
    attempt = held.attempt
    values = (
        attempt.attempt_id,
        rollout_position,
        attempt.sequence_id,
        attempt.worker_id,
        attempt.status,
        attempt.started_at,
        attempt.last_heartbeat_at,
        attempt.lease,
        lifecycle.deadline(held.rollout.config, attempt),
        request_id,
        transaction.position(),
        pinned,
        held.rollout.created_at,
        rollout_position,
    )
    transaction.db.execute(_INSERT_ATTEMPT, values)


def save_attempt(
    transaction: Transaction, config: RolloutConfig, attempt: Attempt, ended_by: str | None = None
) -> None:
    """Store what changed on an attempt."""
    values = (
        attempt.worker_id,
        attempt.status,
        attempt.last_heartbeat_at,
        attempt.finished_at,
        error_text(attempt.error),
        attempt.lease,
        lifecycle.deadline(config, attempt),
        ended_by,
        attempt.attempt_id,
    )
    transaction.db.execute(_UPDATE_ATTEMPT, values)
