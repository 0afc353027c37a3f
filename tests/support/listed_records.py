"""Records whose ids and times are the same in every test, for what commands say of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agl.store.sqlite import SqliteStore
from agl.types import Span, SpanStatus
from agl.types import attributes as key

NOON = 1_790_000_000.0
"""2026-09-21 14:13:20 UTC."""


@dataclass
class Clock:
    """Stands still until it is moved."""

    now: float = NOON

    def __call__(self) -> float:
        return self.now


@dataclass
class Ids:
    """``at-1``, ``at-2``, ..., ``ro-1``, ..."""

    counts: Counter[str] = field(default_factory=Counter[str])

    def __call__(self, prefix: str) -> str:
        self.counts[prefix] += 1
        return f"{prefix}-{self.counts[prefix]}"


def listed_store(path: Path | None = None) -> tuple[SqliteStore, Clock]:
    """A store, in memory or in a file, with a clock to move and ids that count."""
    clock = Clock()
    return SqliteStore(":memory:" if path is None else str(path), clock=clock, new_id=Ids()), clock


def made_span(
    number: int,
    name: str,
    *,
    rollout_id: str,
    attempt_id: str,
    parent: int | None = None,
    at: float = 0.0,
    seconds: float | None = 1.0,
    error: str | None = None,
    **attributes: Any,
) -> Span:
    """A span whose id is its number; attributes are named with ``__`` for a dot."""
    begin = int((NOON + at) * 1e9)
    return Span(
        span_id=f"{number:016x}",
        trace_id="t" * 32,
        parent_id=None if parent is None else f"{parent:016x}",
        name=name,
        status=SpanStatus(code="error", description=error) if error else SpanStatus(),
        attributes={name.replace("__", "."): value for name, value in attributes.items()},
        start_time_ns=begin,
        end_time_ns=None if seconds is None else begin + int(seconds * 1e9),
        rollout_id=rollout_id,
        attempt_id=attempt_id,
    )


def made_call(
    number: int,
    asked: Sequence[Mapping[str, Any]],
    answer: Mapping[str, Any] | None,
    *,
    rollout_id: str,
    attempt_id: str,
    at: float = 0.0,
    seconds: float = 0.5,
    error: str | None = None,
    **attributes: Any,
) -> Span:
    """A recorded call of the model ``m``."""
    span = made_span(
        number,
        "chat m",
        rollout_id=rollout_id,
        attempt_id=attempt_id,
        at=at,
        seconds=seconds,
        error=error,
    )
    recorded: dict[str, Any] = {
        key.OPERATION: "chat",
        key.DIALECT: "openai.chat",
        key.REQUEST_MODEL: "m",
        key.INPUT_MESSAGES: json.dumps(asked),
        key.LATENCY_SECONDS: seconds,
    }
    if answer is not None:
        recorded |= {
            key.OUTPUT_MESSAGES: json.dumps([answer]),
            key.FINISH_REASONS: ["stop"],
            key.INPUT_TOKENS: 12,
            key.OUTPUT_TOKENS: 5,
            key.POLICY_VERSION: 3,
            key.MISSING_IDS_CAUSE: "not_returned",
        }
    if error is not None:
        recorded[key.ERROR_TYPE] = "502"
    return span.model_copy(update={"attributes": recorded | attributes})
