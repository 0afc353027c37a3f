"""The event loop that a command's process runs on."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress


def loop_factory() -> Callable[[], AbstractEventLoop] | None:
    """Return the maker of uvloop's event loops where uvloop is installed, None for asyncio's own."""
    with suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None
