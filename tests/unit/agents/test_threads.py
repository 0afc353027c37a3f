"""Sync code beside the event loop."""

import asyncio
import threading
from contextvars import ContextVar

import pytest

from agl.agents.threads import in_thread

colour: ContextVar[str] = ContextVar("colour", default="none")


async def test_the_context_comes_along_and_changes_stay_inside() -> None:
    colour.set("red")

    def paint() -> str:
        before = colour.get()
        colour.set("blue")
        return before

    assert await in_thread(paint, name="painter") == "red"
    assert colour.get() == "red"


async def test_what_is_raised_arrives_even_system_exit_and_stop_iteration() -> None:
    def leave() -> None:
        raise SystemExit(3)

    def stop() -> None:
        raise StopIteration

    with pytest.raises(SystemExit):
        await in_thread(leave, name="x")
    with pytest.raises(RuntimeError, match="StopIteration"):
        await in_thread(stop, name="x")


async def test_a_given_up_thread_is_named_and_goes_on_alone(caplog) -> None:
    started, release, ended = threading.Event(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        started.set()
        release.wait()
        loop.call_soon_threadsafe(ended.set)

    task = asyncio.create_task(in_thread(work, name="stubborn"))
    await asyncio.to_thread(started.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "stubborn cannot be stopped" in caplog.text
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "stubborn"]
    assert thread.daemon
    release.set()
    await ended.wait()
    await asyncio.to_thread(thread.join)
    await asyncio.sleep(0)
    assert "stubborn, given up earlier, has ended" in caplog.text
