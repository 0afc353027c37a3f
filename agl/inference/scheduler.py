"""Decide, between two steps of the batch, which rows join, which weights are served and which calls have ended.

New rows join while others are being sampled. Prefilling prompts together is cheaper than one by one, so newcomers wait
for each other a little; ``benchmarks/engine.py`` compares. A swap of weights waits for the calls
under way and comes before all others, so every call is sampled by one version.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from agl.errors import InferenceError
from agl.inference.rows import Call, Row

log = logging.getLogger(__name__)


class Batch(Protocol):
    """What the scheduler needs of a ``DecodingBatch``."""

    @property
    def rows(self) -> Sequence[Row]:
        """The rows being sampled."""
        ...

    @property
    def num_free(self) -> int:
        """How many more rows fit."""
        ...

    def admit(self, rows: Sequence[Row]) -> None:
        """Take in new rows."""
        ...

    def step(self) -> Sequence[Row]:
        """Sample one token for every row; return the rows that finished and left."""
        ...

    def drop(self, rows: Collection[Row]) -> None:
        """Remove rows."""
        ...

    def clear(self) -> None:
        """Remove all rows and forget the cache."""
        ...


@dataclass(slots=True, kw_only=True)
class Swap:
    """A change of weights: what to run when no call is under way, and who waits for it."""

    apply: Callable[[], None]
    policy_version: int
    done: Future[None]


class Scheduler:
    """Keeps the calls that have not ended, in order of arrival; lives in one thread.

    Args:
        batch: samples the rows.
        max_steps_waited: how many steps newcomers wait for company at most.
        newcomers_per_row: as soon as there are this many newcomers for each row being sampled, they join.
    """

    def __init__(self, batch: Batch, *, max_steps_waited: int = 4, newcomers_per_row: float = 1 / 8) -> None:
        self.policy_version = 0
        self._batch = batch
        self._max_steps_waited = max_steps_waited
        self._newcomers_per_row = newcomers_per_row
        self._waiting: deque[Row] = deque()
        self._calls: dict[Row, Call] = {}
        self._streamed: dict[Call, None] = {}
        self._swaps: deque[Swap] = deque()
        self._steps_waited = 0

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self._calls or self._swaps)

    def add(self, call: Call) -> None:
        """Queue a call."""
        self._waiting.extend(call.rows)
        self._calls.update(dict.fromkeys(call.rows, call))
        if call.streamed:
            self._streamed[call] = None

    def swap(self, swap: Swap) -> None:
        """Queue a change of weights, before all calls that have not begun."""
        self._swaps.append(swap)

    def remove(self, call: Call) -> None:
        """Forget a call's rows, wherever they are."""
        self._streamed.pop(call, None)
        rows = {row for row in call.rows if self._calls.pop(row, None) is not None}
        if rows & set(self._waiting):
            self._waiting = deque(row for row in self._waiting if row not in rows)
        active = rows & set(self._batch.rows)
        if active:
            self._batch.drop(active)

    def advance(self) -> list[Call]:
        """Swap weights if it is time, let rows join, sample one step.

        Returns the calls whose callers have something to learn: those that ended, and the streamed ones under way.
        """
        try:
            if self._swaps and not self._batch.rows and not self._next_has_begun():
                self._apply_swaps()
            self._admit()
            if not self._batch.rows:
                return []
            ended = self._ended(self._batch.step())
            return ended + self._under_way() if self._streamed else ended
        except Exception as error:  # noqa: BLE001 - the boundary of these calls: they fail, the engine serves on
            return self._failed(error)

    def refuse_all(self, error: InferenceError) -> list[Call]:
        """End everything with ``error``; return the calls."""
        calls = list(dict.fromkeys(self._calls.values()))
        for call in calls:
            call.error = error
        for swap in self._swaps:
            if swap.done.set_running_or_notify_cancel():
                swap.done.set_exception(error)
        self._calls.clear()
        self._streamed.clear()
        self._waiting.clear()
        self._swaps.clear()
        self._batch.clear()
        return calls

    def _next_has_begun(self) -> bool:
        """Whether the first row that waits belongs to a call of which other rows were sampled already."""
        return bool(self._waiting) and self._calls[self._waiting[0]].policy_version is not None

    def _apply_swaps(self) -> None:
        self._batch.clear()
        while self._swaps:
            swap = self._swaps.popleft()
            if not swap.done.set_running_or_notify_cancel():
                continue
            try:
                swap.apply()
            except Exception as error:  # noqa: BLE001 - handed to whoever waits for the swap; the old weights stay
                swap.done.set_exception(error)
            else:
                self.policy_version = swap.policy_version
                swap.done.set_result(None)

    def _admit(self) -> None:
        waiting, active = self._waiting, len(self._batch.rows)
        count = min(len(waiting), self._batch.num_free)
        if count == 0:
            return
        if count < active * self._newcomers_per_row and self._steps_waited < self._max_steps_waited:
            self._steps_waited += 1
            return
        rows: list[Row] = []
        while len(rows) < count and not (self._swaps and not self._next_has_begun()):
            row = waiting.popleft()
            self._calls[row].policy_version = self.policy_version
            rows.append(row)
        if rows:
            self._steps_waited = 0
            self._batch.admit(rows)

    def _ended(self, rows: Iterable[Row]) -> list[Call]:
        ended: list[Call] = []
        for row in rows:
            call = self._calls.pop(row, None)
            if call is None:
                continue
            call.num_unfinished -= 1
            if row.finish_reason == "error":
                call.error = InferenceError(
                    f"policy version {self.policy_version} gives NaN instead of probabilities: its weights are broken",
                    status=500,
                )
                self.remove(call)
                ended.append(call)
            elif call.num_unfinished == 0:
                self._streamed.pop(call, None)
                ended.append(call)
        return ended

    def _under_way(self) -> list[Call]:
        return [call for call in self._streamed if call.policy_version is not None]

    def _failed(self, cause: Exception) -> list[Call]:
        """End the calls that are being sampled, because of ``cause``."""
        calls = list(dict.fromkeys(self._calls[row] for row in self._batch.rows if row in self._calls))
        log.error("sampling failed; %d calls in the batch fail with it", len(calls), exc_info=cause)
        self._batch.clear()
        for call in calls:
            call.error = InferenceError(f"the engine failed: {type(cause).__name__}: {cause}", status=500)
            self.remove(call)
        return calls
