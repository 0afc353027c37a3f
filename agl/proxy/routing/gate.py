"""Gate: new calls wait while those under way end, for trainers whose engine cannot swap its weights live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from agl.errors import InferenceError


class Gate:
    """Every call passes through; a paused gate holds new ones."""

    def __init__(self) -> None:
        self._pauses = 0
        self._open = asyncio.Event()
        self._open.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.under_way = 0

    async def enter(self, *, seconds: float | None) -> None:
        """Begin a call, as soon as the gate is open.

        Raises:
            InferenceError: 503, it stayed paused for so many seconds.
        """
        if self._pauses:
            try:
                async with asyncio.timeout(seconds):
                    while self._pauses:
                        await self._open.wait()
            except TimeoutError as error:
                message = (
                    f"the proxy is paused for new weights, for longer than the {seconds:.3g} s that were left"
                )
                raise InferenceError(message, status=503) from error
        self.under_way += 1
        self._empty.clear()

    def leave(self) -> None:
        """End a call."""
        self.under_way -= 1
        if not self.under_way:
            self._empty.set()

    def pause(self) -> None:
        """Hold new calls until as many ``resume`` as ``pause`` have been called."""
        self._pauses += 1
        self._open.clear()

    def resume(self) -> None:
        """Take one pause back."""
        if not self._pauses:
            raise RuntimeError("resume without pause")
        self._pauses -= 1
        if not self._pauses:
            self._open.set()

    async def drain(self, *, seconds: float | None = None) -> bool:
        """Wait until no call is under way; return False when some still are after so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    @asynccontextmanager
    async def paused(self, *, drain_seconds: float | None = None) -> AsyncGenerator[bool]:
        """Pause and drain; resume on the way out. Yields whether all calls had ended in time."""
        self.pause()
        try:
            yield await self.drain(seconds=drain_seconds)
        finally:
            self.resume()
