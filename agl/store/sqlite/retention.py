"""Forgetting, in SQL: whole runs, or the spans of rollouts that finished long ago."""

from __future__ import annotations

from agl.errors import ConflictError, NotFoundError
from agl.store.base import Retention
from agl.store.sqlite.access import Access
from agl.store.sqlite.writer import Transaction

_OPEN = "('pending', 'preparing', 'running', 'requeuing')"


class SqliteRetention(Retention):
    """Deletion in SQLite."""

    _access: Access

    async def delete_run(self, run_id: str) -> dict[str, int]:
        """Delete a run with all that belongs to it."""
        return await self._access.write(lambda transaction: delete_run(transaction, run_id))

    async def delete_spans(self, *, finished_before: float, run_id: str | None = None) -> int:
        """Delete the spans of rollouts that finished before that time."""
        return await self._access.write(
            lambda transaction: delete_spans(transaction, finished_before, run_id)
        )


def delete_run(transaction: Transaction, run_id: str) -> dict[str, int]:
    """Delete a run that is over, and count what is gone."""
    run = transaction.row("SELECT status FROM run WHERE run_id = ?", (run_id,))
    known = transaction.row("SELECT 1 FROM rollout WHERE run_id = ? LIMIT 1", (run_id,))
    if run is None and known is None:
        raise NotFoundError(f"no run has the id {run_id!r}")
    still_open = transaction.row(
        f"SELECT rollout_id FROM rollout WHERE run_id = ? AND status IN {_OPEN} LIMIT 1", (run_id,)
    )
    if still_open is not None:
        raise ConflictError(
            f"run {run_id} has open rollouts ({still_open[0]} is one): cancel them before the run is deleted"
        )
    if run is not None and run[0] == "running":
        raise ConflictError(f"run {run_id} is running: end it before it is deleted")
    mine = "(SELECT position FROM rollout WHERE run_id = ?)"
    counts = {
        "spans": _delete(transaction, f"span WHERE rollout IN {mine}", run_id),
        "attempts": _delete(transaction, f"attempt WHERE rollout IN {mine}", run_id),
        "rollouts": _delete(transaction, "rollout WHERE run_id = ?", run_id),
        "metrics": _delete(transaction, "metric WHERE run_id = ?", run_id),
    }
    named = "(SELECT resources_id FROM rollout WHERE resources_id IS NOT NULL)"
    counts["resources"] = _delete(
        transaction, f"resources WHERE run_id = ? AND resources_id NOT IN {named}", run_id
    )
    _delete(transaction, "run WHERE run_id = ?", run_id)
    return counts


def delete_spans(transaction: Transaction, finished_before: float, run_id: str | None) -> int:
    """Delete the spans of terminal rollouts (of the run), and count them."""
    if run_id is None:
        rollouts = "(SELECT position FROM rollout WHERE finished_at < ?)"
        return _delete(transaction, f"span WHERE rollout IN {rollouts}", finished_before)
    rollouts = "(SELECT position FROM rollout WHERE finished_at < ? AND run_id = ?)"
    return _delete(transaction, f"span WHERE rollout IN {rollouts}", finished_before, run_id)


def _delete(transaction: Transaction, what: str, *values: object) -> int:
    return transaction.db.execute(f"DELETE FROM {what}", values).rowcount
