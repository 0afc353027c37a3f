"""Cancel rollouts; what has ended already stays as it ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from agl.errors import ConflictError
from agl.store.base import LightningStore
from agl.store.lifecycle import is_terminal
from agl.types import Rollout, RolloutQuery, RolloutStatus

OPEN: tuple[RolloutStatus, ...] = ("pending", "requeuing", "preparing", "running")
PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """What became of the wish to cancel a rollout.

    Args:
        rollout_id: of the rollout.
        was: its status before.
        now: its status now.
    """

    rollout_id: str
    was: RolloutStatus
    now: RolloutStatus

    @property
    def changed(self) -> bool:
        """Whether it was this cancel that ended the rollout."""
        return self.was != self.now

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {"rollout_id": self.rollout_id, "was": self.was, "now": self.now, "changed": self.changed}


async def cancel(store: LightningStore, rollout: Rollout) -> Cancel:
    """Cancel a rollout and its attempt, unless it has ended."""
    now = rollout
    if not is_terminal(rollout.status):
        try:
            now = await store.cancel_rollout(rollout.rollout_id)
        except ConflictError:  # it ended at the last moment
            now = await store.get_rollout_by_id(rollout.rollout_id)
    return Cancel(rollout_id=rollout.rollout_id, was=rollout.status, now=now.status)


async def cancel_run(store: LightningStore, run_id: str, *, page_size: int = PAGE) -> AsyncIterator[Cancel]:
    """Cancel the open rollouts of a run, a page at a time, until none is left."""
    query = RolloutQuery(run_id=run_id, status=OPEN, limit=page_size)
    while page := (await store.query_rollouts(query)).items:
        for rollout in page:
            yield await cancel(store, rollout)


async def count_open(store: LightningStore, run_id: str) -> dict[RolloutStatus, int]:
    """Return how many rollouts of a run are open, by status."""
    counts = (await store.statistics(run_id=run_id))["rollouts"]
    return {status: counts[status] for status in OPEN if counts.get(status)}
