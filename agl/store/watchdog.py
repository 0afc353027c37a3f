"""The watchdog: ends attempts whose time is up or whose worker fell silent, in O(due) from an index on deadlines.

It has no thread and no loop of its own: a store sweeps before every write that comes at or after the next deadline, and
sets a timer on that deadline for when nobody writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agl.store import lifecycle
from agl.types import AttemptedRollout, ErrorInfo

SWEEP_LIMIT = 500
"""Attempts read at once, so that a sweep after a long pause needs little memory."""


class Deadlines(Protocol):
    """Open attempts by deadline, as a store keeps them."""

    def due(self, now: float, limit: int) -> Sequence[AttemptedRollout]:
        """Return up to ``limit`` open attempts whose deadline is at or before ``now``, most overdue first."""
        ...

    def save(self, held: AttemptedRollout) -> None:
        """Store an attempt and its rollout; a requeued rollout joins the queue's end."""
        ...


def sweep(deadlines: Deadlines, now: float) -> int:
    """End every attempt that is due and return how many there were."""
    swept = 0
    while held_ones := deadlines.due(now, SWEEP_LIMIT):
        for held in held_ones:
            deadlines.save(expired(held, now=now))
        swept += len(held_ones)
    return swept


def expired(held: AttemptedRollout, *, now: float) -> AttemptedRollout:
    """Return the attempt ended by its time limit or its silence, and what that makes of the rollout."""
    config, attempt = held.rollout.config, held.attempt
    end = lifecycle.expiry(config, attempt, now)
    assert end is not None, f"attempt {attempt.attempt_id} is not due"
    if end == "timeout":
        message = f"the attempt took longer than timeout_seconds={config.timeout_seconds:g}"
    else:
        message = (
            f"no heartbeat, span or call from worker {attempt.worker_id or '(none)'} "
            f"for unresponsive_seconds={config.unresponsive_seconds:g}"
        )
    report = lifecycle.AttemptReport(status=end, error=ErrorInfo(cause=end, message=message))
    return lifecycle.ended(held, report, now=now)
