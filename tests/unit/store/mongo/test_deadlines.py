from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agl.errors import StoreUnavailableError
from agl.store.mongo.deadlines import Deadlines
from agl.store.mongo.documents import NEVER


class Looks:
    """Notes when it was asked to look, and names the next deadline."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.next = NEVER

    async def __call__(self, now: float) -> float:
        self.times.append(now)
        return self.next


async def test_a_write_looks_only_when_a_deadline_has_come(clock: Any) -> None:
    looks = Looks()
    deadlines = Deadlines(looks, clock)
    await deadlines.ready()
    deadlines.expect(1010.0)
    deadlines.expect(1020.0)
    await deadlines.ready()
    assert looks.times == []
    clock.now = 1010.0
    looks.next = 1020.0
    await deadlines.ready()
    await deadlines.ready()
    assert looks.times == [1010.0]
    clock.now = 1020.0
    looks.next = NEVER
    await deadlines.ready()
    await deadlines.ready()
    assert looks.times == [1010.0, 1020.0]


async def test_a_pause_ends_when_an_earlier_deadline_is_heard_of(clock: Any) -> None:
    deadlines = Deadlines(Looks(), clock)
    pause = asyncio.create_task(deadlines.pause(3600.0))
    await asyncio.sleep(0)
    deadlines.expect(1000.0)
    await asyncio.wait_for(pause, 10)


async def test_a_pause_lasts_no_longer_than_asked(clock: Any) -> None:
    await asyncio.wait_for(Deadlines(Looks(), clock).pause(0.01), 10)


async def test_a_pause_ends_with_the_deadline(clock: Any) -> None:
    deadlines = Deadlines(Looks(), clock)
    deadlines.expect(1000.01)
    await asyncio.wait_for(deadlines.pause(3600.0), 10)


async def test_of_many_writes_at_a_deadline_one_looks(clock: Any) -> None:
    looks = Looks()
    deadlines = Deadlines(looks, clock)
    deadlines.expect(1000.0)
    await asyncio.gather(*(deadlines.ready() for _ in range(9)))
    assert looks.times == [1000.0]


async def test_a_look_that_failed_is_made_again(clock: Any) -> None:
    failures = [StoreUnavailableError("away")]

    async def look(now: float) -> float:
        if failures:
            raise failures.pop()
        return 1050.0

    deadlines = Deadlines(look, clock)
    deadlines.expect(1000.0)
    with pytest.raises(StoreUnavailableError):
        await deadlines.ready()
    await deadlines.ready()
    clock.now = 1049.0
    await asyncio.wait_for(deadlines.pause(0.01), 10)


async def test_a_write_waits_for_the_look_that_is_under_way(clock: Any) -> None:
    looking, over = asyncio.Event(), asyncio.Event()

    async def look(now: float) -> float:
        looking.set()
        await over.wait()
        return NEVER

    deadlines = Deadlines(look, clock)
    deadlines.expect(1000.0)
    first = asyncio.create_task(deadlines.look())
    await looking.wait()
    write = asyncio.create_task(deadlines.ready())
    await asyncio.sleep(0)
    assert not write.done()
    over.set()
    await asyncio.gather(first, write)
