"""A lane: what one event loop of one process has of the client: connections, spans on their way, work left over.

Sockets and futures belong to the loop that made them, so a second loop, a thread's or a forked child's, gets a lane of
its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Hashable
from contextlib import contextmanager
from typing import Any

from agl.http.connections import Connections
from agl.store.client.outbox import Outbox

CLOSE_SECONDS = 5.0
"""How long closing waits for calls under way; then they fail."""
LAST_SECONDS = 1.0
"""How long background work has when the loop ends without ``close``."""


class Lane:
    """The client in one event loop. Ends with ``close``, or by itself when ``asyncio.run`` ends the loop.

    Args:
        connections: to the store.
        post: sends spans, given as a JSON list, and returns the answer's body.
        sleep: as ``asyncio.sleep``.
    """

    def __init__(
        self,
        connections: Connections,
        *,
        post: Callable[[Lane, bytes], Awaitable[bytes]],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.connections = connections
        self.outbox = Outbox(lambda body: post(self, body), spawn=self.spawn)
        self.busy = 0
        """Calls under way."""
        self._sleep = sleep
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._undos: dict[Hashable, asyncio.Task[None]] = {}
        self._guard = self._until_the_loop_ends()

    async def begin(self) -> None:
        """Take care that the lane ends with its loop, whoever forgets to close it."""
        await anext(self._guard)

    @property
    def closing(self) -> bool:
        """Whether it is being closed: calls under way may end, and are not tried again."""
        return self._closing.done()

    @contextmanager
    def visit(self) -> Generator[None]:
        """Count a call as under way: closing waits for it."""
        self.busy += 1
        try:
            yield
        finally:
            self.leave()

    def leave(self) -> None:
        """One call less under way."""
        self.busy -= 1
        if self.busy == 0 and self._left is not None and not self._left.done():
            self._left.set_result(None)

    async def pause(self, seconds: float) -> bool:
        """Sleep; return False when closing ends it early."""
        if self.closing:
            return False
        nap = asyncio.ensure_future(self._sleep(seconds))
        try:
            await asyncio.wait((nap, self._closing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            nap.cancel()
        return not self.closing

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work in the background; closing waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def undo(self, key: Hashable, work: Coroutine[Any, Any, None]) -> None:
        """Take a dequeue back in the background."""
        task = self.spawn(work)
        self._undos[key] = task
        task.add_done_callback(lambda _: self._undos.pop(key, None))

    async def undone(self, key: Hashable) -> None:
        """Wait for the undo of this very dequeue, so that it does not take back what the next call gets."""
        task = self._undos.get(key)
        if task is not None:
            await asyncio.wait((task,))

    async def close(self) -> None:
        """End polls, give calls and background work some time to end, and close the connections."""
        self._begin_closing()
        loop = asyncio.get_running_loop()
        until = loop.time() + CLOSE_SECONDS
        if self.busy:
            self._left = loop.create_future()
            await asyncio.wait((self._left,), timeout=CLOSE_SECONDS)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=max(until - loop.time(), 0.0))
        await self._guard.aclose()

    def drop(self) -> None:
        """End everything at once, without waiting for anything."""
        self._begin_closing()
        self.connections.close()

    def _begin_closing(self) -> None:
        if not self._closing.done():
            self._closing.set_result(None)
        self.connections.cut_polls()

    async def _until_the_loop_ends(self) -> AsyncGenerator[None]:
        """asyncio.run closes generators that are still open just before its loop: then the sockets close, too."""
        try:
            yield
        finally:
            self._begin_closing()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=LAST_SECONDS)
            for task in self._tasks:
                task.cancel()
            self.connections.close()
            await asyncio.sleep(0)  # the transports close in the loop's next round
