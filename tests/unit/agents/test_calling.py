"""Calling user code for one attempt."""

import threading

from agl.agents.binding import BoundFunction
from agl.agents.calling import GIVEN, call, given_by


async def test_async_code_runs_on_the_loop_and_sync_code_in_a_thread(assignment) -> None:
    async def slow(task: str) -> tuple[str, bool]:
        return task, threading.current_thread() is threading.main_thread()

    def fast(task: str) -> tuple[str, bool]:
        return task, threading.current_thread() is threading.main_thread()

    made = assignment("t")
    given = given_by(made)
    assert set(given) == set(GIVEN)
    assert await call(BoundFunction(slow, given=GIVEN), given, made) == ("t", True)
    assert await call(BoundFunction(fast, given=GIVEN), given, made) == ("t", False)
