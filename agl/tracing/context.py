"""The attempt that the running code belongs to: a context variable, never a global.

It follows asyncio tasks, ``asyncio.to_thread`` and whatever else copies the context; the attempts of a process
do not mix. It is in OpenTelemetry's context too, which instrumented libraries carry into threads of their own.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Tracer as OtelTracer

from agl.tracing.kept import KeptBytes
from agl.tracing.reward import Reward
from agl.types import Span


class SpanSink(Protocol):
    """Takes ended spans from any thread, without blocking and without raising."""

    @property
    def sink_id(self) -> str:
        """A name that no other sink of the process has."""
        ...

    def put(self, span: ReadableSpan | Span, rollout_id: str, attempt_id: str) -> None:
        """Take one span of an attempt, or the record that another process made of one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptContext:
    """What code needs to record something on its attempt.

    Args:
        rollout_id: of the attempt.
        attempt_id: of the attempt.
        sink: where the attempt's spans go.
        tracer: makes the spans that agl itself records.
        rewards: what was emitted so far, oldest first.
        log: the log records of the code that runs in it.
    """

    rollout_id: str
    attempt_id: str
    sink: SpanSink
    tracer: OtelTracer
    rewards: list[Reward] = field(default_factory=list[Reward])
    log: KeptBytes = field(default_factory=KeptBytes)


_current: ContextVar[AttemptContext | None] = ContextVar("agl_attempt", default=None)


_OTEL_KEY = "agl_attempt"


def current_attempt(otel: Context | None = None) -> AttemptContext | None:
    """Return the attempt that the caller runs in, None outside of any.

    Args:
        otel: where to look when the caller's own context knows of no attempt; None is OpenTelemetry's current context.
    """
    attempt = _current.get()
    return (
        attempt
        if attempt is not None
        else cast("AttemptContext | None", otel_context.get_value(_OTEL_KEY, otel))
    )


@contextmanager
def entered(attempt: AttemptContext) -> Generator[AttemptContext]:
    """Make ``attempt`` the current one here and in all that starts from here, in a fresh OpenTelemetry context."""
    token = _current.set(attempt)
    otel_token = otel_context.attach(otel_context.set_value(_OTEL_KEY, attempt, Context()))
    try:
        yield attempt
    finally:
        otel_context.detach(otel_token)
        _current.reset(token)


def traceparent() -> str | None:
    """Return the current span as other processes are told of it, None when there is none.

    Source: W3C Trace Context, https://www.w3.org/TR/trace-context/#traceparent-header
    """
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{trace.format_trace_id(span.trace_id)}-{trace.format_span_id(span.span_id)}-01"
