"""Outcome: how an attempt ended, as it is reported: a reward, no reward, or an error with its cause. Never a zero."""

from __future__ import annotations

from dataclasses import dataclass, field

from agl.types import AttemptStatus, ErrorInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended, as it is reported."""

    status: AttemptStatus
    reward: float | None = None
    dimensions: dict[str, float] = field(default_factory=dict[str, float])
    error: ErrorInfo | None = None


STOPPED = Outcome(status="cancelled", error=ErrorInfo(cause="cancelled", message="stopped by its runner"))
