"""The current attempt follows tasks and threads, and never leaks into others."""

import asyncio

from agl.tracing.context import current_attempt
from agl.tracing.tracer import Tracer


def test_there_is_no_attempt_by_default() -> None:
    assert current_attempt() is None


async def test_tasks_and_threads_keep_the_attempt_they_were_started_in(tracer: Tracer) -> None:
    def seen() -> str | None:
        attempt = current_attempt()
        return attempt.attempt_id if attempt else None

    async def agent(number: int) -> list[str | None]:
        with tracer.attempt(f"r{number}", f"a{number}"):
            task = asyncio.create_task(asyncio.to_thread(seen))
            await asyncio.sleep(0)
            return [seen(), await task, await asyncio.to_thread(lambda: asyncio.run(_inner(seen)))]

    results = await asyncio.gather(*(agent(number) for number in range(20)))
    assert results == [[f"a{number}"] * 3 for number in range(20)]
    assert current_attempt() is None


async def _inner(seen) -> str | None:
    await asyncio.sleep(0)
    return await asyncio.to_thread(seen)
