"""Until a signal: services and work that the first one stops; the second ends the process at once, and so does time."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from types import FrameType
from typing import Any, TypeVar

from agl.launch.event_loop import loop_factory

LIMIT_SECONDS = 4.5
"""For the way out; with the interpreter's own end a stop takes under 5 s, whatever hangs."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
"""Exit code of what a signal ended."""

T = TypeVar("T")

log = logging.getLogger(__name__)


def run_until_stopped(
    service: Callable[[], AbstractAsyncContextManager[object]],
    *,
    limit_seconds: float = LIMIT_SECONDS,
    give_up: Callable[[int], object] = os._exit,
) -> signal.Signals:
    """Keep the service's context open, in an event loop of its own, until SIGINT or SIGTERM; then leave it.

    A signal that the process was started to ignore, as shells do in the background of a script, stays ignored. One that
    comes while the context is entered is answered as soon as it is open. A second signal has the system's own effect:
    the process is gone at once.

    Args:
        service: made and entered inside the loop.
        limit_seconds: from the signal; a service that has not ended by then is given up.
        give_up: ends the process with an exit code.

    Returns:
        The signal that stopped it.
    """
    with ExitStack() as ended:
        heeded = _heeded()
        for number in heeded:
            ended.callback(signal.signal, number, signal.getsignal(number))

        def start_clock() -> None:
            _start_clock(ended, limit_seconds, lambda: give_up(1))

        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_until_stopped(service, heeded, start_clock))


async def _until_stopped(
    service: Callable[[], AbstractAsyncContextManager[object]],
    heeded: Sequence[signal.Signals],
    start_clock: Callable[[], None],
) -> signal.Signals:
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[signal.Signals] = loop.create_future()

    def ask(number: signal.Signals) -> None:
        for each in heeded:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        start_clock()
        asked.set_result(number)

    for number in heeded:
        loop.add_signal_handler(number, ask, number)
    async with service():
        return await asked


def end_at_once(code: int) -> None:
    """End the process; a last line says that it was interrupted."""
    with suppress(OSError):  # nobody reads
        os.write(2, b"agl: interrupted\n")
    os._exit(code)


def run_interruptibly(
    work: Callable[[], Coroutine[Any, Any, T]],
    *,
    limit_seconds: float = LIMIT_SECONDS,
    give_up: Callable[[int], object] = end_at_once,
) -> T:
    """Run a coroutine to its end in an event loop of its own; SIGINT or SIGTERM cancels it.

    Signals reach the main thread only: in another one there is nothing to catch. A signal that the process was started
    to ignore stays ignored. A second one has the system's own effect: the process is gone at once.

    Args:
        work: makes the coroutine, inside the loop.
        limit_seconds: from the signal; work that has not ended by then is given up.
        give_up: ends the process with an exit code.

    Raises:
        KeyboardInterrupt: a signal came before the work had ended.
    """
    came: list[int] = []
    cancels: list[Callable[[], object]] = []
    with ExitStack() as ended:

        def on_signal(number: int, frame: FrameType | None) -> None:
            del frame
            came.append(number)
            for each in heeded:
                signal.signal(each, signal.SIG_DFL)
            _start_clock(ended, limit_seconds, lambda: give_up(INTERRUPTED))
            for cancel in cancels:
                cancel()

        heeded = _heeded() if threading.current_thread() is threading.main_thread() else []
        for number in heeded:
            ended.callback(signal.signal, number, signal.signal(number, on_signal))

        async def cancellable() -> T:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            loop.set_default_executor(_Threads(came))
            cancels.append(lambda: loop.call_soon_threadsafe(task.cancel))
            if came:
                task.cancel()
            try:
                return await work()
            finally:
                cancels.clear()

        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                return runner.run(cancellable())
        except BaseException as error:
            if came:
                raise KeyboardInterrupt from error
            raise


class _Threads(ThreadPoolExecutor):
    """The loop's threads. Work in them cannot be stopped: after a signal it is left behind, not waited for.

    Args:
        came: the signals so far.
    """

    def __init__(self, came: Sequence[int]) -> None:
        super().__init__(thread_name_prefix="asyncio")
        self._came = came

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - its base's
        """Take no more work; wait for what is under way unless a signal came."""
        interrupted = bool(self._came)
        super().shutdown(wait and not interrupted, cancel_futures=cancel_futures or interrupted)


def _heeded() -> list[signal.Signals]:
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def _start_clock(ended: ExitStack, limit_seconds: float, give_up: Callable[[], object]) -> None:
    def expire() -> None:
        log.error("what the signal stopped did not end within %s s and is given up", limit_seconds)
        give_up()

    clock = threading.Timer(limit_seconds, expire)
    clock.daemon = True
    clock.start()
    ended.callback(clock.cancel)
