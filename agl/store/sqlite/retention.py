"""Forgetting, in SQL: whole runs, or the spans of rollouts that finished long ago.

Both go in small transactions, so that writers never wait for long. A run's own row goes last: what a crash leaves of a
run can be deleted again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agl.errors import ConflictError, NotFoundError
from agl.store.base import Retention
from agl.store.sqlite.access import Access
from agl.store.sqlite.blobs import release
from agl.store.sqlite.rows import json_list
from agl.store.sqlite.writer import Transaction

CHUNK = 500
"""Rows a transaction: some 10 ms for spans of a few KB each."""
_OPEN = "('pending', 'preparing', 'running', 'requeuing')"
_SPANS = "SELECT position, attributes, events, resource FROM span"


class SqliteRetention(Retention):
    """Deletion in SQLite."""

    _access: Access

    async def delete_run(self, run_id: str) -> dict[str, int]:
        """Delete a run with all that belongs to it."""
        await self._access.write(lambda transaction: _require_known(transaction, run_id))
        total: Counter[str] = Counter(rollouts=0, attempts=0, spans=0, resources=0, metrics=0)
        done = False
        while not done:
            gone, done = await self._access.write(lambda transaction: delete_some_of_run(transaction, run_id))
            total.update(gone)
        await self._access.shrink()
        return dict(total)

    async def delete_spans(self, *, finished_before: float, run_id: str | None = None) -> int:
        """Delete the spans of rollouts that finished before that time."""
        wanted = SpanDeletion(finished_before=finished_before, run_id=run_id)
        total, done = 0, False
        while not done:
            gone, done = await self._access.write(wanted.delete_some)
            total += gone
        await self._access.shrink()
        return total


@dataclass(slots=True, kw_only=True)
class SpanDeletion:
    """How far the deletion of old spans has come."""

    finished_before: float
    run_id: str | None
    after: tuple[float, int] = (float("-inf"), 0)
    """When the last rollout that is done finished, and its position."""

    def delete_some(self, transaction: Transaction) -> tuple[int, bool]:
        """Delete up to ``CHUNK`` spans; return how many, and whether that was the last of them."""
        mine, values = ("", ()) if self.run_id is None else ("AND run_id = ?", (self.run_id,))
        rollouts = transaction.rows(
            "SELECT finished_at, position FROM rollout"
            f" WHERE finished_at < ? AND (finished_at, position) > (?, ?) {mine}"
            " ORDER BY finished_at, position LIMIT ?",
            (self.finished_before, *self.after, *values, CHUNK),
        )
        gone = 0
        after = self.after
        for finished_at, position in rollouts:
            gone += _delete_spans_of(transaction, position, CHUNK - gone)
            if gone >= CHUNK:
                break
            after = (finished_at, position)
        self.after = after
        if rollouts or self.run_id is not None:
            return gone, not rollouts
        strays = transaction.rows(f"{_SPANS} WHERE stored_at < ? LIMIT ?", (self.finished_before, CHUNK))
        return _delete_spans(transaction, strays), not strays


def delete_some_of_run(transaction: Transaction, run_id: str) -> tuple[dict[str, int], bool]:
    """Delete up to ``CHUNK`` rows of a run that is over; return what is gone, and whether the run is.

    Raises:
        ConflictError: the run, or a rollout of it, is not over.
    """
    _require_over(transaction, run_id)
    rollouts = transaction.rows(
        "SELECT position, task, metadata FROM rollout WHERE run_id = ? LIMIT ?", (run_id, CHUNK)
    )
    if rollouts:
        return _delete_rollouts(transaction, rollouts), False
    metrics = transaction.db.execute(
        "DELETE FROM metric WHERE run_id = :run AND step <= (SELECT max(step) FROM"
        " (SELECT step FROM metric WHERE run_id = :run ORDER BY step LIMIT :some))",
        {"run": run_id, "some": CHUNK},
    ).rowcount
    if metrics:
        return {"metrics": metrics}, False
    versions = transaction.rows(
        "DELETE FROM resources WHERE version IN (SELECT version FROM resources v WHERE run_id = ? AND NOT EXISTS"
        " (SELECT 1 FROM rollout WHERE resources_id = v.resources_id) LIMIT ?) RETURNING resources",
        (run_id, CHUNK),
    )
    if versions:
        release(transaction.db, [row[0] for row in versions])
        return {"resources": len(versions)}, False
    transaction.db.execute("DELETE FROM run WHERE run_id = ?", (run_id,))
    return {}, True


def _delete_rollouts(transaction: Transaction, rollouts: Sequence[tuple[Any, ...]]) -> dict[str, int]:
    """Delete rollouts with all they have, as many as make ``CHUNK`` spans."""
    spans = 0
    emptied: list[int] = []
    for position, task, metadata in rollouts:
        spans += _delete_spans_of(transaction, position, CHUNK - spans)
        if spans >= CHUNK:
            break
        release(transaction.db, (task, metadata))
        emptied.append(position)
    which = json_list(emptied)
    among = "IN (SELECT value FROM json_each(?))"
    attempts = transaction.db.execute(f"DELETE FROM attempt WHERE rollout {among}", (which,)).rowcount
    transaction.db.execute(f"DELETE FROM rollout WHERE position {among}", (which,))
    return {"spans": spans, "attempts": attempts, "rollouts": len(emptied)}


def _delete_spans_of(transaction: Transaction, rollout: int, limit: int) -> int:
    return _delete_spans(
        transaction, transaction.rows(f"{_SPANS} WHERE rollout = ? LIMIT ?", (rollout, limit))
    )


def _delete_spans(transaction: Transaction, spans: Sequence[tuple[Any, ...]]) -> int:
    """Delete spans, given as rows of ``_SPANS``, and what only they referred to."""
    if not spans:
        return 0
    release(transaction.db, [text for row in spans for text in row[1:]])
    transaction.db.execute(
        "DELETE FROM span WHERE position IN (SELECT value FROM json_each(?))",
        (json_list(row[0] for row in spans),),
    )
    return len(spans)


def _require_known(transaction: Transaction, run_id: str) -> None:
    for table in ("run", "rollout"):
        if transaction.row(f"SELECT 1 FROM {table} WHERE run_id = ? LIMIT 1", (run_id,)) is not None:
            return
    raise NotFoundError(f"no run has the id {run_id!r}")


def _require_over(transaction: Transaction, run_id: str) -> None:
    still_open = transaction.row(
        f"SELECT rollout_id FROM rollout WHERE run_id = ? AND status IN {_OPEN} LIMIT 1", (run_id,)
    )
    if still_open is not None:
        raise ConflictError(
            f"run {run_id} has open rollouts ({still_open[0]} is one): cancel them before the run is deleted"
        )
    run = transaction.row("SELECT status FROM run WHERE run_id = ?", (run_id,))
    if run is not None and run[0] == "running":
        raise ConflictError(f"run {run_id} is running: end it before it is deleted")
