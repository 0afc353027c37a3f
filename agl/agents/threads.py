"""Sync user code beside the event loop: one daemon thread a call.

Not a pool: Python cannot kill a thread, and one that outlives its attempt must neither take the place of the next
attempt nor keep the process from ending, as an executor's threads do. Starting a thread costs about 0.1 ms.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")

log = logging.getLogger(__name__)


async def in_thread(function: Callable[[], R], *, name: str) -> R:
    """Return what ``function`` returns when called in a new thread with the caller's context.

    When the caller is cancelled the thread goes on by itself; that is logged, and what it returns is dropped.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()

    def _settle(result: R | None, error: BaseException | None) -> None:
        if done.done():
            log.warning(
                "the thread %s, given up earlier, has ended (%s)", name, type(error or result).__name__
            )
        elif error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # pyright: ignore[reportArgumentType] - None only where R has it

    def _work() -> None:
        result: R | None = None
        error: BaseException | None = None
        try:
            result = context.run(function)
        except StopIteration as stop:
            error = RuntimeError("the function raised StopIteration")
            error.__cause__ = stop
        except BaseException as raised:  # noqa: BLE001 - handed to the caller
            error = raised
        try:
            loop.call_soon_threadsafe(_settle, result, error)
        except RuntimeError:  # the loop is closed
            log.warning("the thread %s ended after its event loop", name)

    context = contextvars.copy_context()
    threading.Thread(target=_work, name=name, daemon=True).start()
    try:
        return await done
    finally:
        if done.cancelled():
            log.warning("the thread %s cannot be stopped: it goes on until its function returns", name)
