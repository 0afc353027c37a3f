"""Runs: one execution of a command, its settings and its metrics."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agl.types.record import Json, Record

RunStatus = Literal["running", "succeeded", "failed", "interrupted"]


class Run(Record):
    """One execution of ``agl train``, ``agl eval``, ..."""

    run_id: str
    name: str
    command: str = ""
    settings: dict[str, Json] = Field(default_factory=dict)
    """The resolved settings, secrets masked."""
    git_commit: str | None = None
    status: RunStatus = "running"
    created_at: float
    finished_at: float | None = None


class MetricPoint(Record):
    """One value of one metric at one step."""

    run_id: str
    name: str
    step: int
    value: float
    time: float
