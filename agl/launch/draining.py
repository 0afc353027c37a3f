"""Draining: SIGTERM asks work that is under way to come to its end by itself."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def drained_by_sigterm(stop: asyncio.Event) -> Generator[None]:
    """Set ``stop`` at a first SIGTERM while the block lasts; the next signal does what SIGTERM did before the block.

    For the main thread, on the running event loop. A SIGTERM that the process was started to ignore stays ignored.
    """
    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_IGN:
        yield
        return
    loop = asyncio.get_running_loop()

    def give_back() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)

    def drain() -> None:
        give_back()
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, drain)
    try:
        yield
    finally:
        if not stop.is_set():
            give_back()
