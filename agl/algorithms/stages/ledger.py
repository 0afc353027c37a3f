"""Ledger: what one stage of a run takes: its rollouts, their calls, and its time over all processes of the run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agl.algorithms.prompts.spending import Spent, spent_in_rollout
from agl.algorithms.sampling import READ_AT_ONCE
from agl.evaluation.rollouts import ABANDONED, ASKED, TERMINAL
from agl.store.base import LightningStore
from agl.store.paging import iter_rollouts
from agl.types import Rollout, RolloutQuery

WRITE_SECONDS = 1.0
"""How often the time is written down: what a killed process may forget."""


class Ledger:
    """Counts by what is in the store.

    Args:
        store: of the run.
        run_id: of the run.
        prefix: how the stage's rollouts are named.
        file: where its time is kept.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        store: LightningStore,
        *,
        run_id: str,
        prefix: str,
        file: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._run_id, self._prefix, self._file, self._clock = store, run_id, prefix, file, clock
        self._earlier = float(json.loads(file.read_text())["seconds"]) if file.is_file() else 0.0
        self._begun = self._written = clock()
        self._newest = 0.0
        self._open: set[str] = set()
        self._seen: set[str] = set()
        self._unread: list[Rollout] = []
        self._counted: set[str] = set()
        self._calls = Spent()

    @property
    def seconds(self) -> float:
        """How long the stage has been at work."""
        return self._earlier + self._clock() - self._begun

    async def spent(self, *, with_calls: bool) -> Spent:
        """Return what the stage took so far.

        Args:
            with_calls: count calls, tokens and cost too: every rollout's record is read once.
        """
        if self._clock() - self._written >= WRITE_SECONDS:
            self.write()
        await self._look()
        if with_calls:
            await self._read()
        return replace(self._calls, rollouts=len(self._counted), seconds=self.seconds)

    def num_counted(self, prefix: str) -> int:
        """Return how many of the rollouts that were counted so far have ids that begin so."""
        return sum(rollout_id.startswith(prefix) for rollout_id in self._counted)

    def write(self) -> None:
        """Write the time down for a process that goes on with the stage."""
        self._written = self._clock()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_name(f".{self._file.name}.part")
        partial.write_text(json.dumps({"seconds": self.seconds}))
        partial.replace(self._file)

    async def _look(self) -> None:
        """Find the rollouts that have ended since the last look."""
        created = RolloutQuery(run_id=self._run_id, mode="train", created_after=self._newest or None)
        queries = [created]
        if self._open:
            queries.append(RolloutQuery(run_id=self._run_id, rollout_ids=tuple(self._open)))
        for query in queries:
            async for rollout in iter_rollouts(self._store, query):
                self._newest = max(self._newest, rollout.created_at)
                if rollout.rollout_id.startswith(f"{self._prefix}-"):
                    self._take(rollout)

    def _take(self, rollout: Rollout) -> None:
        if rollout.rollout_id in self._seen:
            return
        if rollout.status not in TERMINAL:
            self._open.add(rollout.rollout_id)
            return
        self._open.discard(rollout.rollout_id)
        self._seen.add(rollout.rollout_id)
        self._unread.append(rollout)
        if not rollout.metadata.keys() & {ASKED, ABANDONED}:
            self._counted.add(rollout.rollout_id)

    async def _read(self) -> None:
        reading, unread = asyncio.Semaphore(READ_AT_ONCE), self._unread
        self._unread = []

        async def read(rollout: Rollout) -> Spent:
            async with reading:
                return await spent_in_rollout(self._store, rollout, is_agent=False)

        self._calls = sum(await asyncio.gather(*map(read, unread)), self._calls)
