"""What agents may record: rewards, messages, objects, exceptions.

Outside of an attempt these check their input and do nothing else, so that an agent runs standalone unchanged. A Python
program that a command agent runs, and what that starts, is in the attempt that its environment names.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from opentelemetry.trace import StatusCode
from opentelemetry.util.types import AttributeValue

from agl.tracing.context import AttemptContext
from agl.tracing.outside import attempt_here
from agl.tracing.plain import json_text, plain
from agl.tracing.reward import Reward, reward_attributes, reward_from_value
from agl.types.attributes import (
    EXCEPTION_SPAN,
    MESSAGE_BODY,
    MESSAGE_SPAN,
    OBJECT_JSON,
    OBJECT_SPAN,
    REWARD_SPAN,
)

log = logging.getLogger(__name__)

Attributes = Mapping[str, object]


def emit_reward(value: float | Mapping[str, float], *, primary: str | None = None) -> None:
    """Record a reward: a number, or numbers by dimension of which one is primary.

    All are kept, in order. The last one emitted is the rollout's reward, unless the agent returns one.

    Args:
        value: the number, or numbers by dimension.
        primary: the dimension that trains the policy; by default the only one, or the one named ``reward``.

    Raises:
        TypeError: not a number (bool and str are refused).
        ValueError: NaN, infinite, or no primary dimension.
    """
    reward = reward_from_value(value, primary=primary)
    attempt = attempt_here()
    if attempt is None:
        log.debug("reward %s is not recorded: there is no attempt here", value)
        return
    record_reward(attempt, reward)


def record_reward(attempt: AttemptContext, reward: Reward, *, attributes: Attributes | None = None) -> None:
    """Add the reward to the attempt, with a span."""
    attempt.rewards.append(reward)
    _record(attempt, REWARD_SPAN, {**reward_attributes(reward), **otel_attributes(attributes)})


def emit_message(body: str, *, attributes: Attributes | None = None) -> None:
    """Record a line of text on the attempt."""
    if not isinstance(body, str):  # pyright: ignore[reportUnnecessaryIsInstance] - agents are not type-checked
        raise TypeError(
            f"emit_message takes a str, not {type(body).__name__}; use emit_object for other values"
        )
    attempt = attempt_here()
    if attempt is None:
        log.debug("message is not recorded, there is no attempt here: %s", body)
        return
    _record(attempt, MESSAGE_SPAN, {**otel_attributes(attributes), MESSAGE_BODY: body})


def emit_object(value: object, *, attributes: Attributes | None = None) -> None:
    """Record any value on the attempt, as JSON; what JSON cannot say becomes text."""
    attempt = attempt_here()
    if attempt is None:
        log.debug("a %s is not recorded: there is no attempt here", type(value).__name__)
        return
    _record(attempt, OBJECT_SPAN, {**otel_attributes(attributes), OBJECT_JSON: json_text(value)})


def emit_exception(error: BaseException, *, attributes: Attributes | None = None) -> None:
    """Record a handled exception with its traceback; the attempt goes on and may still succeed."""
    if not isinstance(error, BaseException):  # pyright: ignore[reportUnnecessaryIsInstance] - agents are not type-checked
        raise TypeError(f"emit_exception takes an exception, not {type(error).__name__}")
    attempt = attempt_here()
    if attempt is None:
        log.debug("%s is not recorded: there is no attempt here", type(error).__name__)
        return
    span = attempt.tracer.start_span(EXCEPTION_SPAN, attributes=otel_attributes(attributes))
    span.record_exception(error)
    span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")
    span.end()


def otel_attributes(attributes: Attributes | None) -> dict[str, AttributeValue]:
    """Return attributes as OpenTelemetry takes them: what is neither a scalar nor a list of text becomes JSON text."""
    return {key: _otel_value(value) for key, value in (attributes or {}).items()}


def _otel_value(value: object) -> AttributeValue:
    simple = plain(value)
    return simple if isinstance(simple, bool | int | float | str) else json_text(simple)


def _record(attempt: AttemptContext, name: str, attributes: Mapping[str, AttributeValue]) -> None:
    attempt.tracer.start_span(name, attributes=attributes).end()
