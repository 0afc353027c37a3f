"""What may happen to rollouts and attempts: the transition tables, and the pure functions that apply them.

Every store calls this module and none decides on its own. Terminal states are final. Time comes in as ``now``.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from agl.errors import ConflictError, InvalidRequestError
from agl.store.retries import retry_at
from agl.types import (
    Attempt,
    AttemptedRollout,
    AttemptStatus,
    ErrorInfo,
    Rollout,
    RolloutConfig,
    RolloutRequest,
    RolloutStatus,
)

ROLLOUT_MOVES: Mapping[RolloutStatus, frozenset[RolloutStatus]] = MappingProxyType(
    {
        "pending": frozenset(("preparing", "cancelled")),
        "preparing": frozenset(("running", "requeuing", "succeeded", "failed", "cancelled")),
        "running": frozenset(("requeuing", "succeeded", "failed", "cancelled")),
        "requeuing": frozenset(("preparing", "cancelled")),
        "succeeded": frozenset(()),
        "failed": frozenset(()),
        "cancelled": frozenset(()),
    }
)
ATTEMPT_MOVES: Mapping[AttemptStatus, frozenset[AttemptStatus]] = MappingProxyType(
    {
        "preparing": frozenset(("running", "succeeded", "failed", "timeout", "unresponsive", "cancelled")),
        "running": frozenset(("succeeded", "failed", "timeout", "unresponsive", "cancelled")),
        "succeeded": frozenset(()),
        "failed": frozenset(()),
        "timeout": frozenset(()),
        "unresponsive": frozenset(()),
        "cancelled": frozenset(()),
    }
)
QUEUED: frozenset[RolloutStatus] = frozenset(("pending", "requeuing"))
"""Statuses in which a rollout waits to be claimed."""
REWARDED: frozenset[AttemptStatus] = frozenset(("succeeded", "failed"))
"""Reports that may carry a reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReport:
    """What a worker says about its attempt."""

    status: AttemptStatus | None = None
    worker_id: str | None = None
    reward: float | None = None
    reward_dimensions: Mapping[str, float] = field(default_factory=dict[str, float])
    error: ErrorInfo | None = None

    def digest(self) -> str:
        """Return a short fingerprint of the outcome, by which a repeat of the final report is recognised."""
        error = None if self.error is None else self.error.model_dump()
        reward = None if self.reward is None else float(self.reward)
        dimensions = {name: float(value) for name, value in self.reward_dimensions.items()}
        outcome = json.dumps([self.status, reward, dimensions, error], sort_keys=True)
        return hashlib.blake2b(outcome.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutChange:
    """What a caller wants changed on a rollout; None leaves as is."""

    status: RolloutStatus | None = None
    resources_id: str | None = None
    config: RolloutConfig | None = None
    metadata: Mapping[str, Any] | None = None
    priority: int | None = None


def is_terminal(status: RolloutStatus | AttemptStatus) -> bool:
    """Return whether a rollout or attempt of this status is finished for good."""
    return status not in ("pending", "preparing", "running", "requeuing")


def lease_end(config: RolloutConfig, now: float) -> float | None:
    """Return until when an attempt that was heard of now may be silent; None is for ever."""
    return None if config.unresponsive_seconds is None else now + config.unresponsive_seconds


def deadline(config: RolloutConfig, attempt: Attempt) -> float | None:
    """Return when the watchdog must look at the attempt: its time limit or its lease, whichever is first."""
    if is_terminal(attempt.status):
        return None
    return next_deadline(config, started_at=attempt.started_at, lease=attempt.lease)


def next_deadline(config: RolloutConfig, *, started_at: float, lease: float | None) -> float | None:
    """Return the first of an open attempt's time limit and lease."""
    limit = None if config.timeout_seconds is None else started_at + config.timeout_seconds
    if lease is None or limit is None:
        return limit if lease is None else lease
    return min(lease, limit)


def expiry(config: RolloutConfig, attempt: Attempt, now: float) -> Literal["timeout", "unresponsive"] | None:
    """Return how an open attempt ends because of the time, None while it may go on. The earlier limit is the cause."""
    end = deadline(config, attempt)
    if end is None or end > now:
        return None
    limit = None if config.timeout_seconds is None else attempt.started_at + config.timeout_seconds
    return "timeout" if limit == end else "unresponsive"


def rollout_end(config: RolloutConfig, num_attempts: int, end: AttemptStatus) -> RolloutStatus:
    """Return what an attempt's end makes of its rollout; ``num_attempts`` counts all attempts so far."""
    if end == "succeeded" or end == "cancelled":
        return end
    return "requeuing" if end in config.retry_on and num_attempts < config.max_attempts else "failed"


def pending_rollout(request: RolloutRequest, *, rollout_id: str, now: float) -> Rollout:
    """Return the rollout that a request makes."""
    return Rollout(
        rollout_id=rollout_id,
        run_id=request.run_id,
        task=request.task,
        mode=request.mode,
        group_id=request.group_id,
        resources_id=request.resources_id,
        config=request.config,
        metadata=request.metadata,
        priority=request.priority,
        created_at=now,
    )


def claimed(
    rollout: Rollout, *, attempt_id: str, worker_id: str | None, resources_id: str | None, now: float
) -> AttemptedRollout:
    """Hand a queued rollout out: a new attempt, its lease, and the resources pinned.

    Raises:
        ConflictError: the rollout is terminal or an attempt is under way.
    """
    if rollout.status not in QUEUED:
        why = "is finished" if is_terminal(rollout.status) else "has an attempt under way"
        raise ConflictError(
            f"rollout {rollout.rollout_id} is {rollout.status}: it {why}, so no attempt can start"
        )
    number = rollout.num_attempts + 1
    attempt = Attempt(
        attempt_id=attempt_id,
        rollout_id=rollout.rollout_id,
        sequence_id=number,
        worker_id=worker_id,
        started_at=now,
        last_heartbeat_at=now,
        lease=lease_end(rollout.config, now),
    )
    changes = {
        "status": "preparing",
        "num_attempts": number,
        "resources_id": rollout.resources_id or resources_id,
        "started_at": now if rollout.started_at is None else rollout.started_at,
        "retry_at": None,
    }
    return AttemptedRollout(rollout=rollout.changed(**changes), attempt=attempt)


def alive(held: AttemptedRollout, *, now: float, worker_id: str | None = None) -> AttemptedRollout:
    """Apply a sign of life: the lease is renewed and a preparing attempt runs. Finished attempts stay as they are."""
    if is_terminal(held.attempt.status):
        return held
    changes: dict[str, object] = {
        "status": "running",
        "last_heartbeat_at": now,
        "lease": lease_end(held.rollout.config, now),
    }
    if worker_id is not None:
        changes["worker_id"] = worker_id
    rollout = held.rollout
    if rollout.status == "preparing":
        rollout = rollout.changed(status="running")
    return AttemptedRollout(rollout=rollout, attempt=held.attempt.changed(**changes))


def ended(held: AttemptedRollout, report: AttemptReport, *, now: float) -> AttemptedRollout:
    """End an open attempt; the rollout is done, waits for another attempt (after a pause, if its config asks for one),
    or has failed with the attempt's error.
    """
    end = report.status
    if end is None or end not in ATTEMPT_MOVES[held.attempt.status]:
        raise ConflictError(
            f"attempt {held.attempt.attempt_id} is {held.attempt.status} and cannot become {end}: terminal is final"
        )
    error = report.error
    if error is None and end != "succeeded":
        error = ErrorInfo(cause=end)
    attempt = held.attempt.changed(
        status=end,
        finished_at=now,
        error=error,
        lease=None,
        worker_id=report.worker_id or held.attempt.worker_id,
    )
    status = rollout_end(held.rollout.config, held.rollout.num_attempts, end)
    changes: dict[str, object] = {"status": status}
    if status == "requeuing":
        number = held.rollout.num_attempts
        changes["retry_at"] = retry_at(held.rollout.config, held.rollout.rollout_id, number, now=now)
    if is_terminal(status):
        changes |= {
            "finished_at": now,
            "error": error,
            "reward": None if report.reward is None else float(report.reward),
            "reward_dimensions": {name: float(value) for name, value in report.reward_dimensions.items()},
        }
    return AttemptedRollout(rollout=held.rollout.changed(**changes), attempt=attempt)


def reported(
    held: AttemptedRollout, report: AttemptReport, *, now: float, ended_by: str | None = None
) -> AttemptedRollout:
    """Apply a worker's report; ``ended_by`` is the digest of the report that ended the attempt, if one did.

    Raises:
        ConflictError: the attempt is terminal (and this is not the report that ended it), or superseded.
        InvalidRequestError: the report makes no sense in any status.
    """
    check_report(report)
    attempt, rollout = held.attempt, held.rollout
    if is_terminal(attempt.status):
        if report.status is not None and ended_by == report.digest():
            return held
        superseded = f" and superseded by attempt {rollout.num_attempts}"
        raise ConflictError(
            f"attempt {attempt.attempt_id} of rollout {rollout.rollout_id} is {attempt.status}"
            f"{superseded if attempt.sequence_id < rollout.num_attempts else ''}: terminal is final"
        )
    if report.status is not None and is_terminal(report.status):
        return ended(held, report, now=now)
    if report.status == "preparing":
        if attempt.status != "preparing":
            raise ConflictError(f"attempt {attempt.attempt_id} is running and cannot go back to preparing")
        changes: dict[str, object] = {"last_heartbeat_at": now, "lease": lease_end(rollout.config, now)}
        if report.worker_id is not None:
            changes["worker_id"] = report.worker_id
        return AttemptedRollout(rollout=rollout, attempt=attempt.changed(**changes))
    return alive(held, now=now, worker_id=report.worker_id)


def check_report(report: AttemptReport) -> None:
    """Refuse what no status can accept.

    Raises:
        InvalidRequestError: a reward that is not finite or comes before the end, an error of a success.
    """
    if report.status is not None and report.status not in ATTEMPT_MOVES:
        raise InvalidRequestError(
            f"{report.status!r} is not an attempt's status; known: {', '.join(ATTEMPT_MOVES)}"
        )
    rewards = dict(report.reward_dimensions)
    if report.reward is not None:
        rewards["reward"] = report.reward
    for name, value in rewards.items():
        if not isinstance(value, numbers.Real) or not math.isfinite(value):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequestError(
                f"{name} is {value!r}: a reward is a finite number, or None for no reward"
            )
    if rewards and report.status not in REWARDED:
        raise InvalidRequestError(
            f"a reward belongs to the final report (succeeded or failed), not to {report.status}"
        )
    if report.error is not None and (
        report.status is None or report.status in ("succeeded", "preparing", "running")
    ):
        raise InvalidRequestError(
            f"an error belongs to a report that ends without success, not to {report.status}"
        )


def cancelled(rollout: Rollout, attempt: Attempt | None, *, now: float) -> tuple[Rollout, Attempt | None]:
    """Cancel a rollout and its latest attempt; a cancelled rollout is answered as it is.

    Raises:
        ConflictError: the rollout succeeded or failed.
    """
    if rollout.status == "cancelled":
        return rollout, attempt
    check_move(rollout, "cancelled")
    if attempt is not None and not is_terminal(attempt.status):
        held = AttemptedRollout(rollout=rollout, attempt=attempt)
        held = ended(held, AttemptReport(status="cancelled"), now=now)
        return held.rollout, held.attempt
    changes = {
        "status": "cancelled",
        "finished_at": now,
        "error": ErrorInfo(cause="cancelled"),
        "retry_at": None,
    }
    return rollout.changed(**changes), attempt


def check_move(rollout: Rollout, status: RolloutStatus) -> None:
    """Raise ConflictError unless the table allows the rollout to move to ``status``."""
    allowed = ROLLOUT_MOVES[rollout.status]
    if status not in allowed:
        ways = ", ".join(sorted(allowed)) if allowed else "nothing: terminal is final"
        raise ConflictError(
            f"rollout {rollout.rollout_id} is {rollout.status} and cannot become {status}; possible: {ways}"
        )


def changed(
    rollout: Rollout, attempt: Attempt | None, change: RolloutChange, *, now: float
) -> tuple[Rollout, Attempt | None]:
    """Apply a caller's change to a rollout; ``attempt`` is the latest one.

    Taking an open rollout back to ``requeuing`` cancels its attempt; ``succeeded`` and ``failed`` end it alike, with
    no retry. Naming the present status changes nothing.

    Raises:
        ConflictError: not legal from the rollout's status.
    """
    fields: dict[str, object] = {
        name: value
        for name, value in (
            ("resources_id", change.resources_id),
            ("config", change.config),
            ("priority", change.priority),
        )
        if value is not None
    }
    if fields and is_terminal(rollout.status):
        raise ConflictError(
            f"rollout {rollout.rollout_id} is {rollout.status}: only its metadata can change, not {', '.join(fields)}"
        )
    if change.metadata is not None:
        fields["metadata"] = dict(change.metadata)
    rollout = rollout.changed(**fields)
    if change.config is not None and attempt is not None and not is_terminal(attempt.status):
        attempt = attempt.changed(lease=lease_end(change.config, attempt.last_heartbeat_at))
    if change.status is None or change.status == rollout.status:
        return rollout, attempt
    return _moved(rollout, attempt, change.status, now=now)


def _moved(
    rollout: Rollout, attempt: Attempt | None, status: RolloutStatus, *, now: float
) -> tuple[Rollout, Attempt | None]:
    if status not in ROLLOUT_MOVES:
        raise InvalidRequestError(f"{status!r} is not a rollout's status; known: {', '.join(ROLLOUT_MOVES)}")
    check_move(rollout, status)
    if status == "cancelled":
        return cancelled(rollout, attempt, now=now)
    if status == "preparing" or attempt is None:
        raise ConflictError(
            f"rollout {rollout.rollout_id} becomes {status} by an attempt: dequeue it or call start_attempt"
        )
    held = AttemptedRollout(rollout=rollout, attempt=attempt)
    if status == "running":
        held = alive(held, now=now)
        return held.rollout, held.attempt
    if status == "succeeded":
        held = ended(held, AttemptReport(status="succeeded"), now=now)
        return held.rollout, held.attempt
    cause = ErrorInfo(
        cause="requeued" if status == "requeuing" else "failed", message="set by update_rollout"
    )
    report = AttemptReport(status="cancelled" if status == "requeuing" else "failed", error=cause)
    attempt = ended(held, report, now=now).attempt
    fields: dict[str, object] = {"status": status}
    if status == "failed":
        fields |= {"finished_at": now, "error": cause}
    return rollout.changed(**fields), attempt
