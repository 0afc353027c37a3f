"""Workers as a list: who lives, and what is in their hands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agl.cli.text import Column, age, counted, table, wrapped
from agl.store.base import LightningStore
from agl.store.paging import iter_attempts
from agl.types import AttemptQuery, Worker, WorkerQuery

COLUMNS = (
    Column(title="worker", is_id=True),
    Column(title="status"),
    Column(title="heard", align="right"),
    Column(title="done", align="right", rank=2),
    Column(title="failed", align="right", rank=3),
    Column(title="host", rank=4, least=8),
    Column(title="pid", align="right", rank=5),
    Column(title="works on", rank=1, least=16),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """A worker and the rollouts in its hands.

    Args:
        worker: as the store knows it.
        rollout_ids: of its open attempts.
    """

    worker: Worker
    rollout_ids: Sequence[str]

    @property
    def status(self) -> str:
        """The store's word, or ``ended`` where the worker itself said that it ends."""
        return "ended" if self.worker.stats.get("ended") else self.worker.status

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        values = self.worker.model_dump(mode="json")
        return {**values, "status": self.status, "rollout_ids": list(self.rollout_ids)}


async def workers_of_store(store: LightningStore, limit: int) -> list[WorkerState]:
    """Return the workers: those that live first, then those heard of last."""
    workers: list[Worker] = []
    query = WorkerQuery(order="desc")
    while True:
        page = await store.query_workers(query)
        workers += page.items
        if page.next_cursor is None:
            break
        query = query.model_copy(update={"cursor": page.next_cursor})
    workers.sort(key=lambda worker: (not is_alive(worker), -worker.last_heartbeat_at))
    return [await state_of_worker(store, worker) for worker in workers[:limit]]


def is_alive(worker: Worker) -> bool:
    """Whether the worker was heard of lately, and has not said that it ends."""
    return worker.status != "offline" and not worker.stats.get("ended")


async def state_of_worker(store: LightningStore, worker: Worker) -> WorkerState:
    """Return the worker with the rollouts that it works on."""
    held: list[str] = []
    if is_alive(worker):
        query = AttemptQuery(worker_id=worker.worker_id, status=("preparing", "running"))
        held = [attempt.rollout_id async for attempt in iter_attempts(store, query)]
    return WorkerState(worker=worker, rollout_ids=held)


def worker_lines(states: Sequence[WorkerState], *, place: str, now: float, width: int) -> list[str]:
    """Return the workers as a table; ``now`` is the time that ages count from."""
    if not states:
        return [f"No workers in {place}"]
    alive = sum(is_alive(state.worker) for state in states)
    lines = table(COLUMNS, [_row(state, now) for state in states], width=width)
    return [*lines, "", *wrapped(f"{counted(len(states), 'worker')}, {alive} alive, in {place}", width=width)]


def _row(state: WorkerState, now: float) -> list[object]:
    worker = state.worker
    failed = cast("Mapping[str, int] | None", worker.stats.get("failed"))
    return [
        worker.worker_id,
        state.status,
        f"{age(now - worker.last_heartbeat_at)} ago",
        worker.stats.get("succeeded"),
        None if failed is None else sum(failed.values()),
        worker.host or None,
        worker.pid or None,
        ", ".join(state.rollout_ids) or None,
    ]
