"""Ctrl-C before a command's own loop heeds it: while there is nothing to stop it ends the process, whatever it does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
"""Exit code."""


def leave_on_interrupt(*, end: Callable[[int], object] = os._exit) -> None:
    """Let SIGINT end this process from now on, until something else takes it over.

    Raised as KeyboardInterrupt in the middle of an import or of a constructor it ends in a traceback, or is swallowed,
    or leaves half an object for the exit handlers. A SIGINT that the process was started to ignore stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return

    def leave(number: int, frame: FrameType | None) -> None:
        del number, frame
        os.write(2, b"agl: interrupted\n")  # past the streams, which it may have come in the middle of
        end(INTERRUPTED)

    signal.signal(signal.SIGINT, leave)


@contextmanager
def raised_interrupts() -> Generator[None]:
    """Raise SIGINT as KeyboardInterrupt while the block lasts: for work that cleans up behind itself."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
