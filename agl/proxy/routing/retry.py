"""Retries: how long a call pauses before its next try. Pure."""

from __future__ import annotations

from collections.abc import Callable

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0


def pause_seconds(num_tries: int, *, rng: Callable[[], float], asked: float | None) -> float:
    """Return the pause after so many failed tries.

    Between half of a limit that doubles and all of it, and never less than what the server ``asked`` for: the longer
    wish counts, so a server under load gets its time.
    """
    limit = min(FIRST_PAUSE_SECONDS * 2.0 ** min(max(num_tries - 1, 0), 16), LONGEST_PAUSE_SECONDS)
    return max(limit * (0.5 + 0.5 * rng()), asked or 0.0)
