"""Rollouts and attempts: the request to run an agent on one task, and each execution of it.

Times are Unix seconds by the store's clock, so that clock differences between machines do not matter.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agl.types.record import Identifier, Json, Record

Mode = Literal["train", "val", "test"]
RolloutStatus = Literal["pending", "preparing", "running", "requeuing", "succeeded", "failed", "cancelled"]
AttemptStatus = Literal["preparing", "running", "succeeded", "failed", "timeout", "unresponsive", "cancelled"]
RetryCause = Literal["failed", "timeout", "unresponsive"]


class ErrorInfo(Record):
    """Why an attempt or a rollout ended without success."""

    cause: str
    """A short, countable name: the exception's class, ``timeout``, ``unresponsive``, ``cancelled``."""
    message: str = ""
    traceback: str | None = None


class RolloutConfig(Record):
    """How long a rollout may take and how often it may be tried."""

    timeout_seconds: float | None = Field(default=None, gt=0)
    """Longest time of one attempt, from its claim; None is no limit."""
    unresponsive_seconds: float | None = Field(default=None, gt=0)
    """Longest silence of an attempt (no heartbeat, span or call) before it is given up; None is no limit."""
    max_attempts: int = Field(default=1, ge=1, le=2**63 - 1)
    """All attempts count, the first included."""
    retry_on: tuple[RetryCause, ...] = ("failed", "timeout", "unresponsive")
    """Ends that lead to another attempt while ``max_attempts`` allows one."""
    retry_delay_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Longest pause before the second attempt; doubled for each further one. 0 is no pause at all."""
    retry_max_delay_seconds: float = Field(default=300.0, ge=0, allow_inf_nan=False)
    """The doubled pause grows no longer than this. Every pause is shortened by up to half of it, by the rollout's id
    and the attempt's number, so that rollouts that failed together do not come back together."""


class RolloutRequest(Record):
    """What a caller enqueues. ``rollout_id`` makes the call idempotent."""

    task: Json
    rollout_id: Identifier | None = None
    run_id: str | None = None
    mode: Mode = "train"
    group_id: str | None = None
    resources_id: str | None = None
    """The resources the agent gets; None is the latest at the time of the claim."""
    config: RolloutConfig = RolloutConfig()
    metadata: dict[str, Json] = Field(default_factory=dict)
    priority: int = 0
    """Higher is claimed first; equal priorities in the order of enqueueing."""


class Attempt(Record):
    """One execution of a rollout by one worker."""

    attempt_id: str
    rollout_id: str
    sequence_id: int
    """1 for the first attempt of the rollout, 2 for its first retry, ..."""
    worker_id: str | None = None
    status: AttemptStatus = "preparing"
    started_at: float
    last_heartbeat_at: float
    finished_at: float | None = None
    error: ErrorInfo | None = None
    lease: float | None = None
    """When the attempt is taken from its worker unless a sign of life comes first; None is never."""


class Rollout(Record):
    """The request to run the agent on one task once, and its record."""

    rollout_id: str
    run_id: str | None = None
    task: Json
    mode: Mode = "train"
    group_id: str | None = None
    resources_id: str | None = None
    config: RolloutConfig = RolloutConfig()
    metadata: dict[str, Json] = Field(default_factory=dict)
    priority: int = 0
    status: RolloutStatus = "pending"
    reward: float | None = None
    """The primary reward; None is no reward, which is never the same as 0."""
    reward_dimensions: dict[str, float] = Field(default_factory=dict)
    error: ErrorInfo | None = None
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    num_attempts: int = 0
    retry_at: float | None = None
    """When a rollout that pauses before its next attempt joins the queue; None where it does not pause."""


class AttemptedRollout(Record):
    """A claimed rollout with the attempt that the claim made."""

    rollout: Rollout
    attempt: Attempt


class RecordedRollout(Rollout):
    """A rollout with all its attempts, as one store writes it down for another."""

    attempts: tuple[Attempt, ...] = ()
