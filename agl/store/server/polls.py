"""Long polls: a store's wait ends when its client leaves or the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, TypeVar

from agl.store.server.refusal import ClientGoneError

T = TypeVar("T")
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class LongPolls:
    """The waits under way."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Task[Any]] = set()
        self.stopping = False

    def __len__(self) -> int:
        return len(self._waiting)

    def release(self) -> None:
        """End all waits, now and from now on."""
        self.stopping = True
        for task in self._waiting:
            task.cancel()

    async def wait(self, receive: Receive, call: Coroutine[Any, Any, T], *, otherwise: T) -> T:
        """Return what the call returns; ``otherwise`` when the server stops first. The call is cancelled to its end.

        Raises:
            ClientGoneError: the client closed the connection first.
        """
        if self.stopping:
            call.close()
            return otherwise
        task = asyncio.create_task(call)
        watch = asyncio.create_task(_cancel_when_gone(receive, task))
        self._waiting.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if watch.done():
                raise ClientGoneError from None
            if self.stopping:
                return otherwise
            raise
        finally:
            self._waiting.discard(task)
            watch.cancel()


async def _cancel_when_gone(receive: Receive, task: asyncio.Task[Any]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    task.cancel()
