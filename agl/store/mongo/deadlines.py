"""The watchdog of one process: when it must look next, and the look at what is overdue.

Every process that has the namespace open looks: by a timer on the next deadline that it knows, before a write that
comes at or after it, and now and then for deadlines that others set. Several may find the same attempt; the condition
of the write lets one of them end it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agl.store.mongo.documents import NEVER


class Deadlines:
    """The next known deadline of one process, and the look that comes with it.

    Args:
        look: ends what is overdue at a time and returns the next deadline.
        clock: the time.
    """

    def __init__(self, look: Callable[[float], Awaitable[float]], clock: Callable[[], float]) -> None:
        self._look = look
        self._clock = clock
        self._next = NEVER
        self._looked_for = NEVER
        """The deadline for which a look is under way."""
        self._earlier = asyncio.Event()
        self._looking = asyncio.Lock()

    def expect(self, deadline: float) -> None:
        """Learn of a deadline."""
        if deadline < self._next:
            self._next = deadline
            self._earlier.set()

    async def ready(self) -> None:
        """Look now if a known deadline has come, or wait for the look that is under way for it.

        Called before every write; of many callers one looks.
        """
        if min(self._next, self._looked_for) <= self._clock():
            async with self._looking:
                if self._next <= self._clock():
                    await self._look_once()

    async def look(self) -> None:
        """End what is overdue, and learn when to look next."""
        async with self._looking:
            await self._look_once()

    async def _look_once(self) -> None:
        known, self._next = self._next, NEVER  # what is heard of during the look counts, too
        self._looked_for = known
        try:
            found = await self._look(self._clock())
        except BaseException:
            self.expect(known)
            raise
        finally:
            self._looked_for = NEVER
        self.expect(found)

    async def pause(self, longest_seconds: float) -> None:
        """Sleep until the next known deadline, and no longer than that."""
        until = asyncio.get_running_loop().time() + longest_seconds
        while True:
            self._earlier.clear()
            left = until - asyncio.get_running_loop().time()
            seconds = min(self._next - self._clock(), left)
            if seconds <= 0.0:
                return
            try:
                async with asyncio.timeout(seconds):
                    await self._earlier.wait()
            except TimeoutError:
                return
