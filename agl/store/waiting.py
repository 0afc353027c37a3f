"""Waits without polling: who waits for a rollout to claim, and who for rollouts to finish.

Lives on the event loop; a store announces what a committed write brought about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable


class Arrivals:
    """Callers that wait for a claimable rollout, in the order in which they came."""

    def __init__(self) -> None:
        # A dict is an ordered set; the key None holds the callers that take a rollout of any run.
        self._waiting: dict[str | None, dict[asyncio.Future[None], None]] = {}
        self._closed = False

    def join(self, run_id: str | None) -> asyncio.Future[None]:
        """Return a future that is done when a rollout (of the run) may be claimable, or when the store closes."""
        arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed:
            arrival.set_result(None)
        else:
            self._waiting.setdefault(run_id, {})[arrival] = None
        return arrival

    def leave(self, arrival: asyncio.Future[None], run_id: str | None) -> None:
        """Stop waiting; a wake-up that came meanwhile goes to the next in line."""
        if arrival.done():
            if not arrival.cancelled():
                self.announce((run_id,))
            return
        line = self._waiting.get(run_id)
        if line is not None:
            line.pop(arrival, None)
            if not line:
                del self._waiting[run_id]

    def announce(self, run_ids: Iterable[str | None]) -> None:
        """Wake one waiting caller for each rollout that became claimable, given by its run."""
        for run_id in run_ids:
            if not self._waiting:
                return
            if not self._wake(run_id) and run_id is not None:
                self._wake(None)

    def waiting(self) -> dict[str | None, int]:
        """Return how many callers wait for each run; under None those that take a rollout of any."""
        return {run_id: len(line) for run_id, line in self._waiting.items()}

    def close(self) -> None:
        """Wake everybody, now and from now on."""
        self._closed = True
        for run_id in list(self._waiting):
            while self._wake(run_id):
                pass

    def _wake(self, run_id: str | None) -> bool:
        line = self._waiting.get(run_id)
        while line:
            arrival = next(iter(line))
            del line[arrival]
            if not line:
                del self._waiting[run_id]
            if not arrival.done():
                arrival.set_result(None)
                return True
        return False


class Finishes:
    """Callers that wait until given rollouts are terminal."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[FinishWait]] = {}
        self._closed = False

    def join(self, rollout_ids: Iterable[str], *, at_least: int | None = None) -> FinishWait:
        """Register a wait for all of the rollouts, or for that many of them. Announce those that are terminal already,
        once they are read.
        """
        wait = FinishWait(set(rollout_ids), asyncio.get_running_loop().create_future(), at_least=at_least)
        for rollout_id in wait.missing:
            self._waiting.setdefault(rollout_id, set()).add(wait)
        if self._closed or wait.is_over:
            wait.done.set_result(None)
        return wait

    def leave(self, wait: FinishWait) -> None:
        """Forget a wait."""
        for rollout_id in wait.missing:
            waits = self._waiting.get(rollout_id)
            if waits is not None:
                waits.discard(wait)
                if not waits:
                    del self._waiting[rollout_id]

    def announce(self, rollout_ids: Iterable[str]) -> None:
        """Tell the waits that these rollouts are terminal."""
        for rollout_id in rollout_ids:
            for wait in self._waiting.pop(rollout_id, ()):
                wait.saw(rollout_id)

    def waiting(self) -> list[str]:
        """Return the rollouts that somebody waits for."""
        return list(self._waiting)

    def close(self) -> None:
        """End all waits, now and from now on."""
        self._closed = True
        for waits in self._waiting.values():
            for wait in waits:
                if not wait.done.done():
                    wait.done.set_result(None)


class FinishWait:
    """One caller's wait: the rollouts still missing, and the future that is done when none is, or few enough are."""

    def __init__(self, missing: set[str], done: asyncio.Future[None], *, at_least: int | None = None) -> None:
        self.missing = missing
        self.done = done
        self._may_miss = 0 if at_least is None else max(len(missing) - at_least, 0)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is waited for."""
        return len(self.missing) <= self._may_miss

    def saw(self, rollout_id: str) -> None:
        """Note that a rollout is terminal."""
        self.missing.discard(rollout_id)
        if self.is_over and not self.done.done():
            self.done.set_result(None)
