"""Tries: where one call goes next after a failure. Pure, but for the clock and the random numbers that it is given.

Replicas of an endpoint are tried one after the other at once; when all have failed, again after pauses, up to a number
of retries; then comes the next endpoint of the route. What could not succeed anywhere is not tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agl.errors import InferenceError
from agl.proxy.routing.retry import pause_seconds
from agl.proxy.routing.target import Replica, Target
from agl.proxy.upstreams.base import UpstreamError


class Tries:
    """One call's way along its route.

    Args:
        route: the targets that can take the call, at least one.
        rollout_id: whose call it is.
        max_retries: tries of one target after its first.
        deadline: the clock's time until which the client waits; None sets no limit.
        clock: seconds, never going back.
        rng: uniform numbers from 0 to 1.
    """

    def __init__(
        self,
        route: Sequence[Target],
        *,
        rollout_id: str,
        max_retries: int,
        deadline: float | None,
        clock: Callable[[], float],
        rng: Callable[[], float],
    ) -> None:
        self._route = list(route)
        self._rollout_id = rollout_id
        self._max_retries = max_retries
        self._deadline = deadline
        self._clock = clock
        self._rng = rng
        self._tried: set[int] = set()
        self._blamed: set[Replica] = set()
        self._failures = 0
        self._index = 0

    def next(self) -> tuple[Target, Replica]:
        """Return where the call goes now: past targets without a well server, if a later one has one."""
        now = self._clock()
        while not self._route[0].is_well(now) and any(target.is_well(now) for target in self._route[1:]):
            self._to_the_next_target()
        target = self._route[0]
        self._index = target.choose(self._rollout_id, tried=self._tried, now=now)
        return target, target.replicas[self._index]

    def blames(self, replica: Replica) -> bool:
        """Whether a failure of this call speaks against a server: once, however often it is tried there.

        A request that no server survives would else take them all from the other calls.
        """
        is_first = replica not in self._blamed
        self._blamed.add(replica)
        return is_first

    def pause_after(self, error: InferenceError) -> float:
        """Return how long to wait before the next try.

        Raises:
            InferenceError: the error, when there is none.
        """
        if not isinstance(error, UpstreamError) or not error.retry:
            raise error
        self._tried.add(self._index)
        self._failures += 1
        target = self._route[0]
        if self._failures <= self._max_retries:
            if target.has_other(self._tried):
                return self._in_time(0.0, error)
            pause = pause_seconds(self._failures, rng=self._rng, asked=error.retry_after)
            if self._fits(pause):
                return pause
        if len(self._route) == 1:
            raise error
        self._to_the_next_target()
        return self._in_time(0.0, error)

    def _in_time(self, pause: float, error: InferenceError) -> float:
        if not self._fits(pause):
            raise error
        return pause

    def _fits(self, pause: float) -> bool:
        return self._deadline is None or self._clock() + pause < self._deadline

    def _to_the_next_target(self) -> None:
        self._route.pop(0)
        self._tried, self._failures = set(), 0
