"""Ask again for rollouts that failed or were cancelled.

Terminal is final, so that is a new rollout, ``ID-retry-1``, with the same task, mode, group, config and resources.
Asked for once more, one that waits, runs or has succeeded is answered as it is; one that failed is followed by the next
number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from agl.errors import NotFoundError
from agl.evaluation.rollouts import ABANDONED, STRAGGLER
from agl.store.base import LightningStore
from agl.types import Rollout, RolloutRequest, RolloutStatus, Worker

RETRY_OF = "retry_of"
"""In the metadata of a retry: the rollout that was asked for first."""
ENDED_BADLY: frozenset[RolloutStatus] = frozenset(("failed", "cancelled"))
ACTIVE_SECONDS = 60.0
"""A runner silent for longer is taken for gone."""
_MAX_ROOT = 180
"""Characters of the first id in that of a retry; ids have 200 at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """What is asked for in place of a rollout.

    Args:
        rollout: as it is.
        retry_id: of the rollout that stands for it now; the rollout's own where that is open.
        existing: that rollout, None where it is still to be made.
    """

    rollout: Rollout
    retry_id: str
    existing: Rollout | None

    @property
    def first_id(self) -> str:
        """The id of the rollout that was asked for first."""
        return first_id(self.rollout)

    def as_json(self, now: Rollout) -> dict[str, Any]:
        """Return it as plain values; ``now`` is the rollout that stands for it."""
        return {
            "rollout_id": self.rollout.rollout_id,
            "was": self.rollout.status,
            "retry_id": now.rollout_id,
            "status": now.status,
            "is_new": self.existing is None,
            "reward": now.reward,
            "error": None if now.error is None else now.error.model_dump(exclude={"traceback"}),
        }


def first_id(rollout: Rollout) -> str:
    """Return the id of the rollout that this one is a retry of; its own where it is none."""
    named = rollout.metadata.get(RETRY_OF)
    return named if isinstance(named, str) else rollout.rollout_id


async def planned_retry(store: LightningStore, rollout: Rollout) -> Retry:
    """Return what a retry of the rollout comes to, without changing anything."""
    if rollout.status not in ENDED_BADLY:
        return Retry(rollout=rollout, retry_id=rollout.rollout_id, existing=rollout)
    for number in count(1):
        retry_id = f"{first_id(rollout)[:_MAX_ROOT]}-retry-{number}"
        try:
            existing = await store.get_rollout_by_id(retry_id)
        except NotFoundError:
            return Retry(rollout=rollout, retry_id=retry_id, existing=None)
        if existing.status not in ENDED_BADLY:
            return Retry(rollout=rollout, retry_id=retry_id, existing=existing)
    raise AssertionError("count() has no end")


async def enqueue_retries(store: LightningStore, retries: Sequence[Retry]) -> list[Rollout]:
    """Put those that are still to be made into the queue; return the rollout that stands for each."""
    requests = {retry.retry_id: _request(retry) for retry in retries if retry.existing is None}
    made = {one.rollout_id: one for one in await store.enqueue_many_rollouts(list(requests.values()))}
    return [retry.existing or made[retry.retry_id] for retry in retries]


def _request(retry: Retry) -> RolloutRequest:
    rollout = retry.rollout
    kept = {name: value for name, value in rollout.metadata.items() if name not in (ABANDONED, STRAGGLER)}
    return RolloutRequest(
        task=rollout.task,
        rollout_id=retry.retry_id,
        run_id=rollout.run_id,
        mode=rollout.mode,
        group_id=rollout.group_id,
        resources_id=rollout.resources_id,
        config=rollout.config,
        metadata={**kept, RETRY_OF: retry.first_id},
        priority=rollout.priority,
    )


async def runners_for(store: LightningStore, run_id: str | None) -> list[Worker]:
    """Return the workers at work that would execute rollouts of that run."""
    active = await store.get_active_workers(within_seconds=ACTIVE_SECONDS)
    return [
        worker
        for worker in active
        if not worker.stats.get("ended") and worker.stats.get("run_id") in (None, run_id)
    ]
