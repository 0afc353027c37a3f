"""Waits that headers ask for: how long a server wants to be left alone, how long a client waits. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def retry_after_seconds(headers: Mapping[str, str], *, now: float) -> float | None:
    """Return the pause that a response asks for (RFC 9110, section 10.2.3), None for none.

    Args:
        headers: names in lower case. OpenAI's ``retry-after-ms`` comes first, as in its own clients.
        now: Unix time, for dates.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    wish = headers.get("retry-after")
    seconds = _number(wish)
    if seconds is not None or wish is None:
        return seconds
    try:
        return max(parsedate_to_datetime(wish).timestamp() - now, 0.0)
    except (ValueError, OverflowError):
        return None


def seconds_of_client(headers: Mapping[bytes, bytes], *, limit: float) -> float:
    """Return how long a client waits for its answer, as its SDK says, and at most ``limit``.

    OpenAI's and Anthropic's clients send their read timeout; after it they hang up and repeat the request.
    """
    for name in (b"x-stainless-read-timeout", b"x-stainless-timeout"):
        seconds = _number(headers.get(name, b"").decode("latin-1"))
        if seconds:
            return min(seconds, limit)
    return limit


def _number(text: str | None) -> float | None:
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
