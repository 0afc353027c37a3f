"""A service until it is stopped: the first signal asks, the second ends the process at once, and so does time."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack

from agl.launch.event_loop import loop_factory

LIMIT_SECONDS = 4.5
"""For the way out; with the interpreter's own end a stop takes under 5 s, whatever hangs."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)

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
        before = {number: signal.getsignal(number) for number in SIGNALS}
        heeded = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]
        for number in heeded:
            ended.callback(signal.signal, number, before[number])

        def start_clock() -> None:
            _start_clock(ended, limit_seconds, give_up)

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


def _start_clock(ended: ExitStack, limit_seconds: float, give_up: Callable[[int], object]) -> None:
    def expire() -> None:
        log.error("the service did not end within %s s of the signal and is given up", limit_seconds)
        give_up(1)

    clock = threading.Timer(limit_seconds, expire)
    clock.daemon = True
    clock.start()
    ended.callback(clock.cancel)
