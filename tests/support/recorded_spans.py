"""Recorded calls and rewards as the proxy and the tracer write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agl.types import Span, SpanStatus
from agl.types import attributes as key
from agl.types.packing import packed_floats, packed_ids


def call_span(
    sequence_id: int,
    prompt: Sequence[int],
    response: Sequence[int],
    *,
    agent: str | None = None,
    error: bool = False,
    **attributes: Any,
) -> Span:
    """A recorded call whose logprobs are -0.5 each."""
    return Span(
        span_id=f"{sequence_id:016x}",
        trace_id="t" * 32,
        name="chat policy",
        kind="client",
        status=SpanStatus(code="error" if error else "ok"),
        attributes={
            key.PROMPT_TOKEN_IDS: packed_ids(prompt),
            key.RESPONSE_TOKEN_IDS: packed_ids(response),
            key.RESPONSE_LOGPROBS: packed_floats([-0.5] * len(response)),
            key.TEMPERATURE: 1.0,
            key.FINISH_REASONS: ["stop"],
            key.POLICY_VERSION: 3,
            **({key.AGENT: agent} if agent else {}),
            **attributes,
        },
        start_time_ns=sequence_id,
        rollout_id="r1",
        attempt_id="a1",
        sequence_id=sequence_id,
    )


def reward_span(sequence_id: int, value: float, *, at_ns: int | None = None) -> Span:
    """A reward emitted between calls; it may arrive (``sequence_id``) later than it was emitted (``at_ns``)."""
    return Span(
        span_id=f"{sequence_id:016x}",
        trace_id="t" * 32,
        name=key.REWARD_SPAN,
        attributes={key.REWARD_VALUE: value},
        start_time_ns=sequence_id if at_ns is None else at_ns,
        rollout_id="r1",
        attempt_id="a1",
        sequence_id=sequence_id,
    )
