"""Health of a server: after failures in a row it is left alone for a while, each time for longer. Pure.

The clock's times and the random numbers come in as arguments.
"""

from __future__ import annotations

from collections.abc import Callable

FAILURES_TO_OPEN = 3
FIRST_REST_SECONDS = 1.0
LONGEST_REST_SECONDS = 30.0


class Breaker:
    """Whether a server gets calls. Closed at first; ``failed`` calls in a row open it, one that succeeds closes it.

    Args:
        rng: uniform numbers from 0 to 1; rests are shortened by up to a half, so that servers which failed together
            are not tried again together.
    """

    def __init__(self, *, rng: Callable[[], float]) -> None:
        self._rng = rng
        self._failures = 0
        self.rests_until: float | None = None
        """The time at which to look again, None while the server is well."""

    @property
    def is_closed(self) -> bool:
        """Whether the server is taken for well."""
        return self.rests_until is None

    def is_due(self, now: float) -> bool:
        """Whether an unwell server has rested long enough to be tried."""
        return self.rests_until is not None and now >= self.rests_until

    def succeeded(self) -> None:
        """The server answered."""
        self._failures, self.rests_until = 0, None

    def failed(self, now: float) -> bool:
        """The server failed; return whether that turned a well one unwell."""
        was_closed = self.is_closed
        self._failures += 1
        if self._failures < FAILURES_TO_OPEN:
            return False
        doublings = min(self._failures - FAILURES_TO_OPEN, 16)
        rest = min(FIRST_REST_SECONDS * 2.0**doublings, LONGEST_REST_SECONDS)
        self.rests_until = now + rest * (1.0 - 0.5 * self._rng())
        return was_closed
