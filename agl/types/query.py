"""Queries: filters, order and pages of the store's lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Literal, TypeVar

from pydantic import Field

from agl.types.record import Json, Record
from agl.types.rollout import Mode, RolloutStatus

T = TypeVar("T")
Order = Literal["asc", "desc"]
MAX_PAGE = 10_000


class Page(Record, Generic[T]):
    """A slice of a list. ``next_cursor`` continues it and is None on the last page."""

    items: Sequence[T]
    next_cursor: str | None = None


class ListQuery(Record):
    """What every list takes."""

    limit: int = Field(default=1000, ge=1, le=MAX_PAGE)
    cursor: str | None = None
    order: Order = "asc"


class RolloutQuery(ListQuery):
    """Rollouts, by default oldest first. Filters combine with AND; a tuple matches any of its values."""

    rollout_ids: tuple[str, ...] | None = None
    run_id: str | None = None
    status: tuple[RolloutStatus, ...] | None = None
    mode: Mode | None = None
    group_id: str | None = None
    worker_id: str | None = None
    resources_id: str | None = None
    created_after: float | None = None
    created_before: float | None = None
    sort_by: Literal["created_at", "started_at", "finished_at", "reward"] = "created_at"


class AttemptQuery(ListQuery):
    """Attempts in the order of their start."""

    rollout_id: str | None = None
    worker_id: str | None = None
    status: tuple[str, ...] | None = None


class SpanQuery(ListQuery):
    """Spans in the order in which the store received them (per attempt: by sequence id)."""

    rollout_id: str | None = None
    attempt_id: str | None = None
    """``latest`` names the rollout's newest attempt."""
    trace_id: str | None = None
    run_id: str | None = None
    name: str | None = None
    name_prefix: str | None = None
    attributes: dict[str, Json] | None = None
    """Each named attribute equals the given value."""


class MetricQuery(ListQuery):
    """Metric points of a run in the order of their steps."""

    run_id: str
    names: tuple[str, ...] | None = None
    min_step: int | None = None


class WorkerQuery(ListQuery):
    """Workers in the order of their registration."""

    status: tuple[str, ...] | None = None


class RunQuery(ListQuery):
    """Runs in the order of their creation."""

    name: str | None = None
    status: tuple[str, ...] | None = None


class ResourcesQuery(ListQuery):
    """Resources in the order of their versions."""

    run_id: str | None = None
