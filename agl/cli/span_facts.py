"""What a span is about, in a few words."""

from __future__ import annotations

from typing import Any

from agl.cli.text import NOTHING, duration, number, plain, shortened
from agl.types import Span
from agl.types import attributes as key

_VALUE = 60
"""Columns of one attribute's value."""
_ATTRIBUTES = 4
_ERROR_WIDTH = 300
_OURS = "agl."
"""Before the names of our own attributes, which read as well without it."""
_OF_ATTEMPT = (key.ROLLOUT_ID, key.ATTEMPT_ID, key.SPAN_SEQUENCE_ID)
"""What every span of an attempt may say; nobody needs it here."""


def facts_of(span: Span) -> str:
    """Return the main attributes of a span as one printable line; its parts are two spaces apart."""
    found = span.attributes
    if span.name.startswith(key.CHAT_SPAN_PREFIX) and key.INPUT_MESSAGES in found:
        return "  ".join(plain(part) for part in [*_counts(span), *_ends(span)])
    if span.name in (key.REWARD_SPAN, key.REGRADE_SPAN):
        by = [f"by {found[key.REGRADE_GRADER]}"] if key.REGRADE_GRADER in found else []
        return "  ".join([shown_value(found.get(key.REWARD_VALUE)), *_dimensions(span), *by])
    if span.name == key.OUTPUT_SPAN:
        return f"{plain(found.get(key.OUTPUT_STREAM, '?'))}  {plain(found.get(key.OUTPUT_BYTES, '?'))} bytes"
    for name in (key.MESSAGE_BODY, key.OBJECT_JSON):
        if name in found:
            return shortened(found[name], 2 * _VALUE)
    named = [name for name in found if name not in _OF_ATTEMPT]
    parts = [
        f"{plain(name.removeprefix(_OURS))}={shortened(found[name], _VALUE)}" for name in named[:_ATTRIBUTES]
    ]
    return "  ".join(parts)


def call_facts(span: Span) -> str:
    """Return the same of a model call, beginning with the model and the version of the policy."""
    found = span.attributes
    model = found.get(key.RESPONSE_MODEL) or found.get(key.REQUEST_MODEL) or span.name
    version = _version(span)
    parts = [f"{model} {version}" if version else str(model), *_counts(span, with_version=False)]
    seconds = seconds_of(span)
    if seconds is not None:
        parts.append(duration(seconds))
    return "  ".join(plain(part) for part in [*parts, *_ends(span)])


def _counts(span: Span, *, with_version: bool = True) -> list[str]:
    found = span.attributes
    parts = [_version(span)] if with_version and _version(span) else []
    if key.AGENT in found:
        parts.append(f"of {found[key.AGENT]}")
    if key.INPUT_TOKENS in found or key.OUTPUT_TOKENS in found:
        parts.append(f"{found.get(key.INPUT_TOKENS, '?')} in + {found.get(key.OUTPUT_TOKENS, '?')} out")
    return parts


def _ends(span: Span) -> list[str]:
    """How a call ended, and whether a model was asked at all."""
    found = span.attributes
    parts: list[str] = []
    reasons: Any = found.get(key.FINISH_REASONS)
    if isinstance(reasons, list | tuple):
        parts.append("/".join(str(reason) for reason in reasons))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if found.get(key.REPLAY) == "hit":
        parts.append("from the record")
    elif found.get(key.CACHE) == "hit":
        parts.append("from the cache")
    if span.status.code == "error":
        parts.append(f"failed: {found.get(key.ERROR_TYPE, 'error')}")
    return parts


def _version(span: Span) -> str:
    """``v3``, or ``v3-4`` where the weights were swapped while the answer was sampled."""
    first = span.attributes.get(key.POLICY_VERSION)
    last = span.attributes.get(key.POLICY_VERSION_END)
    if first is None:
        return ""
    return f"v{first}" if last is None else f"v{first}-{last}"


def _dimensions(span: Span) -> list[str]:
    said = [f"{plain(name)} {shown_value(value)}" for name, value in reward_dimensions(span).items()]
    return [f"({', '.join(said)})"] if said else []


def reward_dimensions(span: Span) -> dict[str, Any]:
    """Return the dimensions of a reward by name."""
    prefix = key.REWARD_DIMENSION_PREFIX
    return {
        name.removeprefix(prefix): value for name, value in span.attributes.items() if name.startswith(prefix)
    }


def shown_value(value: object) -> str:
    """Return the value of a reward, whatever a foreign span has there."""
    if isinstance(value, int | float):
        return number(value)
    return NOTHING if value is None else plain(value)


def seconds_of(span: Span) -> float | None:
    """Return how long a span lasted, None while it is open."""
    return None if span.end_time_ns is None else (span.end_time_ns - span.start_time_ns) / 1e9


def error_of(span: Span) -> str:
    """Return what went wrong in a span: its status's words, else its exception's, else the kind of error."""
    if span.status.description:
        return shortened(span.status.description, _ERROR_WIDTH)
    for event in span.events:
        if event.name == "exception":
            kind = event.attributes.get("exception.type", "exception")
            return shortened(
                f"{kind}: {event.attributes.get('exception.message', '')}".rstrip(": "), _ERROR_WIDTH
            )
    return shortened(span.attributes.get(key.ERROR_TYPE) or "error", _ERROR_WIDTH)
