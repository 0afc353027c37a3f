"""The attempt that the running code belongs to: a context variable, never a global.

It follows asyncio tasks, ``asyncio.to_thread`` and whatever else copies the context; the attempts of a process
do not mix.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Tracer as OtelTracer

from agl.tracing.reward import Reward


class SpanSink(Protocol):
    """Takes ended spans from any thread, without blocking and without raising."""

    @property
    def sink_id(self) -> str:
        """A name that no other sink of the process has."""
        ...

    def put(self, span: ReadableSpan, rollout_id: str, attempt_id: str) -> None:
        """Take one span of an attempt."""
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
    """

    rollout_id: str
    attempt_id: str
    sink: SpanSink
    tracer: OtelTracer
    rewards: list[Reward] = field(default_factory=list[Reward])


_current: ContextVar[AttemptContext | None] = ContextVar("agl_attempt", default=None)


def current_attempt() -> AttemptContext | None:
    """Return the attempt that the caller runs in, None outside of any."""
    return _current.get()


@contextmanager
def entered(attempt: AttemptContext) -> Generator[AttemptContext]:
    """Make ``attempt`` the current one of this task or thread, and of all that it starts."""
    token = _current.set(attempt)
    try:
        yield attempt
    finally:
        _current.reset(token)
