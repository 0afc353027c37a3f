"""The queue's half of the store: rollouts and attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from agl.errors import InvalidRequestError, NotFoundError
from agl.store import lifecycle
from agl.store.base import RolloutQueue
from agl.store.sqlite import attempts, queries, rollout_queries, rollouts
from agl.store.sqlite.access import Access
from agl.store.sqlite.writer import Operation, Transaction
from agl.types import (
    Attempt,
    AttemptedRollout,
    AttemptQuery,
    AttemptStatus,
    ErrorInfo,
    Page,
    Rollout,
    RolloutConfig,
    RolloutQuery,
    RolloutRequest,
    RolloutStatus,
)


class SqliteQueue(RolloutQueue):
    """Rollouts and attempts in SQLite."""

    _access: Access

    async def enqueue_many_rollouts(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        """Append to the queue, all or none."""
        wanted = list(requests)
        return await self._access.write(lambda transaction: rollouts.enqueue(transaction, wanted))

    async def dequeue_many_rollouts(
        self,
        *,
        worker_id: str,
        limit: int = 1,
        wait_seconds: float = 0.0,
        request_id: str | None = None,
        run_id: str | None = None,
    ) -> list[AttemptedRollout]:
        """Claim up to ``limit`` rollouts. A caller that is cancelled while it waits strands nothing."""
        if not worker_id or limit < 1 or not wait_seconds >= 0.0:
            raise InvalidRequestError(
                f"dequeue needs a worker_id, limit >= 1 and wait_seconds >= 0;"
                f" got {worker_id!r}, {limit} and {wait_seconds}"
            )
        access, arrivals = self._access, self._access.arrivals
        until = asyncio.get_running_loop().time() + wait_seconds
        with access.visit():
            arrival = arrivals.join(run_id)
            try:
                while True:
                    claimed = await self._claim(
                        worker_id=worker_id, limit=limit, request_id=request_id, run_id=run_id
                    )
                    if claimed or access.closing or not await _done(arrival, until):
                        return claimed
                    arrival = arrivals.join(run_id)
            finally:
                arrivals.leave(arrival, run_id)

    async def undo_dequeue(self, *, worker_id: str, request_id: str) -> list[str]:
        """Take back a dequeue whose answer did not reach its caller."""
        return await self._access.write(
            lambda transaction: rollouts.undo_claim(transaction, worker_id, request_id)
        )

    async def start_rollout(
        self, request: RolloutRequest, *, worker_id: str | None = None
    ) -> AttemptedRollout:
        """Make a rollout and its first attempt at once."""
        return await self._access.write(
            lambda transaction: rollouts.start_rollout(transaction, request, worker_id)
        )

    async def start_attempt(self, rollout_id: str, *, worker_id: str | None = None) -> AttemptedRollout:
        """Open a new attempt of a queued rollout."""
        return await self._access.write(
            lambda transaction: rollouts.start_attempt(transaction, rollout_id, worker_id)
        )

    async def update_attempt(
        self,
        rollout_id: str,
        attempt_id: str,
        *,
        status: AttemptStatus | None = None,
        worker_id: str | None = None,
        reward: float | None = None,
        reward_dimensions: Mapping[str, float] | None = None,
        error: ErrorInfo | None = None,
    ) -> AttemptedRollout:
        """Report on an attempt; the rollout follows in the same step."""
        said = lifecycle.AttemptReport(
            status=status,
            worker_id=worker_id,
            reward=reward,
            reward_dimensions=dict(reward_dimensions or {}),
            error=error,
        )
        return await self._access.write(
            lambda transaction: attempts.report(transaction, rollout_id, attempt_id, said)
        )

    async def update_rollout(
        self,
        rollout_id: str,
        *,
        status: RolloutStatus | None = None,
        resources_id: str | None = None,
        config: RolloutConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        priority: int | None = None,
    ) -> Rollout:
        """Change what is given."""
        wanted = lifecycle.RolloutChange(
            status=status, resources_id=resources_id, config=config, metadata=metadata, priority=priority
        )
        return await self._access.write(lambda transaction: rollouts.change(transaction, rollout_id, wanted))

    async def cancel_rollout(self, rollout_id: str) -> Rollout:
        """Cancel a rollout and its attempt."""
        return await self._access.write(lambda transaction: rollouts.cancel(transaction, rollout_id))

    async def get_rollout_by_id(self, rollout_id: str) -> Rollout:
        """Return the rollout."""
        page = await self.query_rollouts(RolloutQuery(rollout_ids=(rollout_id,), limit=1))
        if not page.items:
            raise NotFoundError(f"no rollout has the id {rollout_id!r}")
        return page.items[0]

    async def query_rollouts(self, query: RolloutQuery | None = None) -> Page[Rollout]:
        """List rollouts."""
        wanted = query or RolloutQuery()
        return await self._access.read(lambda db: rollout_queries.rollouts(db, wanted))

    async def query_attempts(self, query: AttemptQuery) -> Page[Attempt]:
        """List attempts."""
        return await self._access.read(lambda db: queries.attempts(db, query))

    async def get_latest_attempt(self, rollout_id: str) -> Attempt | None:
        """Return the newest attempt."""
        page = await self.query_attempts(AttemptQuery(rollout_id=rollout_id, order="desc", limit=1))
        if not page.items:
            await self.get_rollout_by_id(rollout_id)
            return None
        return page.items[0]

    async def wait_for_rollouts(
        self,
        rollout_ids: Sequence[str],
        *,
        timeout_seconds: float | None = None,
        at_least: int | None = None,
    ) -> list[Rollout]:
        """Wait until all (or so many) are terminal or time is up."""
        access, finishes = self._access, self._access.finishes
        loop = asyncio.get_running_loop()
        until = None if timeout_seconds is None else loop.time() + timeout_seconds
        with access.visit():
            wait = finishes.join(rollout_ids, at_least=at_least)
            try:
                found = await self._find(rollout_ids)
                finishes.announce(
                    rollout_id for rollout_id, one in found.items() if lifecycle.is_terminal(one.status)
                )
                if not wait.is_over:
                    await _done(wait.done, until)
                    found = await self._find(rollout_ids)
            finally:
                finishes.leave(wait)
        return [found[one] for one in rollout_ids if lifecycle.is_terminal(found[one].status)]

    async def _claim(self, **wanted: Any) -> list[AttemptedRollout]:
        """Claim; what a cancelled caller does not receive goes back to the queue."""

        def undo(claimed: list[AttemptedRollout]) -> Operation[None]:
            return lambda transaction: _put_back(transaction, claimed)

        answer = self._access.write(lambda transaction: rollouts.claim(transaction, **wanted), undo=undo)
        try:
            return await answer
        except asyncio.CancelledError:
            if not answer.cancelled() and answer.exception() is None:
                self._access.write(undo(answer.result()))
            raise

    async def _find(self, rollout_ids: Sequence[str]) -> dict[str, Rollout]:
        found = await self._access.read(lambda db: rollouts.rollouts_by_id(db, rollout_ids))
        unknown = [rollout_id for rollout_id in rollout_ids if rollout_id not in found]
        if unknown:
            raise NotFoundError(
                f"no rollout has the id {unknown[0]!r} ({len(unknown)} of those asked for are unknown)"
            )
        return found


def _put_back(transaction: Transaction, claimed: Sequence[AttemptedRollout]) -> None:
    rollouts.unclaim(transaction, [one.attempt.attempt_id for one in claimed])


async def _done(future: asyncio.Future[None], until: float | None) -> bool:
    """Wait for the future until that time of the loop; return whether it is done."""
    seconds = None if until is None else max(until - asyncio.get_running_loop().time(), 0.0)
    if not future.done() and seconds != 0.0:
        await asyncio.wait((future,), timeout=seconds)
    return future.done()
