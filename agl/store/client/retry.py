"""Retries: how long a call pauses before it is tried again, and when it is given up."""

from __future__ import annotations

from collections.abc import Callable

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0


class Outage:
    """One call's time without the store, from its first failure on.

    Pauses have full jitter (uniform between 0 and a limit that doubles), so that clients of a store that comes back do
    not come all at once: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/

    Args:
        seconds: after so long the call is given up.
        clock: seconds, never going back.
        rng: uniform numbers from 0 to 1.
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float], rng: Callable[[], float]) -> None:
        self.seconds = seconds
        self._clock = clock
        self._rng = rng
        self._since = clock()
        self.failures = 0

    @property
    def elapsed(self) -> float:
        """Seconds since the first failure."""
        return self._clock() - self._since

    def left(self) -> float:
        """Return the seconds until the call is given up."""
        return self.seconds - self.elapsed

    def pause(self, *, at_least: float = 0.0) -> float | None:
        """Count a failure; return how long to pause before the next try, None when there is no time for one.

        ``at_least`` is the server's wish (Retry-After).
        """
        limit = min(FIRST_PAUSE_SECONDS * 2.0 ** min(self.failures, 32), LONGEST_PAUSE_SECONDS)
        self.failures += 1
        pause = max(self._rng() * limit, at_least)
        return pause if pause < self.left() else None
