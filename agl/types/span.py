"""Spans: timed operations in OpenTelemetry's shape, plus the attempt that they belong to."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agl.types.record import Json, Record

SpanKind = Literal["internal", "server", "client", "producer", "consumer"]
SpanStatusCode = Literal["unset", "ok", "error"]


class SpanStatus(Record):
    """OpenTelemetry's status of a span."""

    code: SpanStatusCode = "unset"
    description: str | None = None


class SpanEvent(Record):
    """Something that happened at one moment of a span."""

    name: str
    time_ns: int
    attributes: dict[str, Json] = Field(default_factory=dict)


class SpanLink(Record):
    """A pointer to a span of this or another trace."""

    trace_id: str
    span_id: str
    attributes: dict[str, Json] = Field(default_factory=dict)


class Span(Record):
    """One timed operation. ``span_id`` is 16 and ``trace_id`` 32 lower-case hex digits."""

    span_id: str = Field(min_length=1, max_length=64)
    trace_id: str = Field(min_length=1, max_length=64)
    parent_id: str | None = None
    name: str
    kind: SpanKind = "internal"
    status: SpanStatus = SpanStatus()
    attributes: dict[str, Json] = Field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    resource: dict[str, Json] = Field(default_factory=dict)
    start_time_ns: int
    """Unix nanoseconds by the clock of the process that made the span; order spans by ``sequence_id``."""
    end_time_ns: int | None = None
    rollout_id: str | None = None
    attempt_id: str | None = None
    sequence_id: int | None = None
    """Monotonic per attempt. None on the way in: the store allocates it."""
