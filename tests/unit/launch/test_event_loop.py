"""The event loop of a command."""

from __future__ import annotations

import asyncio

from agl.launch.event_loop import loop_factory


def test_the_loop_is_uvloops_where_it_is_installed() -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        loop = runner.get_loop()
        assert type(loop).__module__.partition(".")[0] == "uvloop"
