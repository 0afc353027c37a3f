"""The agents of benchmarks/runner.py, in a file as users have them."""

from __future__ import annotations

import asyncio

SECONDS = 1.0


async def trivial(task: int) -> float:
    """Return a reward."""
    return float(task)


async def sleeping(task: int) -> float:
    """Wait as an agent waits for its model."""
    await asyncio.sleep(SECONDS)
    return float(task)
