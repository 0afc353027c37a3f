"""Long waits, made of polls that are each no longer than a server holds one."""

from __future__ import annotations

import asyncio
import math

from agl.store import wire
from agl.store.client.lane import Lane

EARLY_PAUSE_SECONDS = 0.25
"""A server that is stopping answers polls before their time; asking again at once would be a busy loop."""


class Wait:
    """One caller's wait.

    Args:
        lane: of the call; when it closes the wait is over.
        seconds: how long to wait, None for ever.
    """

    def __init__(self, lane: Lane, seconds: float | None) -> None:
        self._lane = lane
        self._time = asyncio.get_running_loop().time
        self._until = self._time() + (math.inf if seconds is None else seconds)
        self._asked_at = self._asked_for = 0.0

    def next_poll(self) -> float:
        """Return how many seconds the next poll may take."""
        self._asked_at = self._time()
        self._asked_for = min(max(self._until - self._asked_at, 0.0), wire.MAX_WAIT_SECONDS)
        return self._asked_for

    async def goes_on(self) -> bool:
        """Return, after a poll without the result, whether another one is due."""
        now = self._time()
        if self._lane.closing or now >= self._until:
            return False
        if now - self._asked_at < self._asked_for / 2:
            return await self._lane.pause(min(EARLY_PAUSE_SECONDS, self._until - now))
        return True
