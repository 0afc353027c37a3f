"""What a wait for rollouts waits for, in words: which are the slowest, on whom and since when, or that nobody works.

Ages are told by the store's clock: it was read when the rollouts were enqueued, and the time since is measured here.
So a machine whose clock is off tells the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from agl.metrics.board import duration
from agl.store.base import LightningStore
from agl.types import Attempt, Rollout, RolloutQuery, Worker

SHOWN = 2
"""Rollouts named; the slowest come first."""
READ_AT_ONCE = 100
"""Rollouts read to find those; of more, the oldest are read."""
SILENT_SECONDS = 60.0
"""A worker silent for longer is shown as offline by the store, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitedFor:
    """How far a wait is.

    Args:
        done: rollouts that are terminal.
        total: rollouts asked for.
        words: what is waited for, None when nothing is.
    """

    done: int
    total: int
    words: str | None = None


OnWait = Callable[[WaitedFor], None]


def no_words(waited: WaitedFor) -> None:
    """Tell nobody."""


class Watch:
    """Looks who keeps a wait waiting.

    Args:
        store: where the rollouts are.
        rollouts: as they were just enqueued or found.
        time: seconds, never going back.
    """

    def __init__(
        self, store: LightningStore, rollouts: Sequence[Rollout], *, time: Callable[[], float]
    ) -> None:
        self._store, self._time, self._begun = store, time, time()
        runs = {rollout.run_id for rollout in rollouts}
        self._run_id = runs.pop() if len(runs) == 1 else None
        self._store_time = max((rollout.created_at for rollout in rollouts), default=0.0)

    async def whom(self, missing: Collection[str]) -> str:
        """Return ``i2-g0-1 on host-1 for 1:20, ...``, given who is not terminal; empty where nothing stands out."""
        wanted = set(missing)
        open_ones = [one for one in await self._oldest("preparing", "running") if one.rollout_id in wanted]
        retried = [one for one in await self._oldest("requeuing") if one.rollout_id in wanted]
        workers = [one for one in await self._workers() if not one.stats.get("ended")]
        parts = await self._slowest(open_ones)
        pauses = [one.retry_at - self._now() for one in retried if one.retry_at is not None]
        if pauses:
            verb = "pauses" if len(pauses) == 1 else "pause"
            parts.append(f"{len(pauses)} {verb} before a retry, the next for {duration(min(pauses))}")
        queued = len(wanted) - len(open_ones) - len(pauses)
        if not workers and not open_ones:
            parts.append("no runner is connected")
        elif not workers:
            parts.append("no runner is connected any more")
        elif queued and not open_ones:
            parts.append(f"{queued} in the queue of {_counted(len(workers), 'runner')}")
        return ", ".join(parts)

    async def _slowest(self, open_ones: Sequence[Rollout]) -> list[str]:
        lines: list[str] = []
        for rollout in open_ones[:SHOWN]:
            attempt = await self._store.get_latest_attempt(rollout.rollout_id)
            if attempt is not None:
                lines.append(self._line(rollout, attempt))
        return lines

    def _line(self, rollout: Rollout, attempt: Attempt) -> str:
        name = rollout.rollout_id.removeprefix(f"{rollout.run_id}-")
        again = f" (attempt {attempt.sequence_id})" if attempt.sequence_id > 1 else ""
        return f"{name} on {attempt.worker_id or 'nobody'} for {duration(self._now() - attempt.started_at)}{again}"

    def _now(self) -> float:
        """The store's time."""
        return self._store_time + self._time() - self._begun

    async def _oldest(self, *status: str) -> Sequence[Rollout]:
        query = RolloutQuery.model_validate(
            {"run_id": self._run_id, "status": status, "sort_by": "started_at", "limit": READ_AT_ONCE}
        )
        return (await self._store.query_rollouts(query)).items

    async def _workers(self) -> list[Worker]:
        return await self._store.get_active_workers(within_seconds=SILENT_SECONDS)


def waited_words(num_open: int, needed: int) -> str:
    """Return ``3 rollouts``, or ``2 of 5 rollouts`` where not all that are open must end."""
    return (
        _counted(num_open, "rollout")
        if needed >= num_open
        else f"{needed} of {_counted(num_open, 'rollout')}"
    )


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
