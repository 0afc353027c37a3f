"""What one event loop has of the client."""

from __future__ import annotations

import asyncio

import pytest
from scripted_store import ScriptedStore

from agl.http.connections import Connections, LostError
from agl.http.parsing import FastParser
from agl.store.client.lane import Lane


async def unused(lane: Lane, body: bytes) -> bytes:
    raise AssertionError


async def for_ever(seconds: float = 0.0) -> None:
    await asyncio.get_running_loop().create_future()


@pytest.fixture
async def lane(server: ScriptedStore) -> Lane:
    made = Lane(Connections(server.dial, FastParser), post=unused, sleep=for_ever)
    await made.begin()
    return made


async def test_closing_waits_for_calls_and_for_work_in_the_background(lane: Lane) -> None:
    done: list[str] = []
    go = asyncio.Event()

    async def call() -> None:
        with lane.visit():
            await go.wait()
            done.append("call")
            lane.spawn(work())

    async def work() -> None:
        done.append("work")

    calling = asyncio.ensure_future(call())
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(lane.close())
    await asyncio.sleep(0)
    assert lane.closing
    assert not closing.done()
    go.set()
    await closing
    assert calling.done()
    assert done == ["call", "work"]


async def test_a_pause_ends_when_the_lane_closes(lane: Lane) -> None:
    pausing = asyncio.ensure_future(lane.pause(60.0))
    await asyncio.sleep(0)
    await lane.close()
    assert await pausing is False
    assert await lane.pause(60.0) is False


async def test_a_dequeue_waits_for_the_undo_of_its_own_request_only(lane: Lane) -> None:
    go = asyncio.Event()

    async def undo() -> None:
        await go.wait()

    lane.undo(("w", "q"), undo())
    await lane.undone(("w", "other"))
    waiting = asyncio.ensure_future(lane.undone(("w", "q")))
    await asyncio.sleep(0)
    assert not waiting.done()
    go.set()
    await waiting
    await lane.undone(("w", "q"))


async def test_dropping_waits_for_nothing(lane: Lane, server: ScriptedStore) -> None:
    server.on("GET /x", lambda _: for_ever())
    request = b"GET /x HTTP/1.1\r\n\r\n"
    call = asyncio.ensure_future(lane.connections.exchange(request, seconds=60))
    await asyncio.sleep(0)
    lane.drop()
    with pytest.raises(LostError):
        await call
    await lane.close()


def test_a_lane_that_nobody_closes_ends_with_its_loop(server: ScriptedStore) -> None:
    lanes: list[Lane] = []

    async def forgetful() -> None:
        lane = Lane(Connections(server.dial, FastParser), post=unused, sleep=for_ever)
        await lane.begin()
        server.on("GET /x", lambda _: 1)
        await lane.connections.exchange(b"GET /x HTTP/1.1\r\n\r\n", seconds=60)
        lanes.append(lane)

    asyncio.run(forgetful())
    assert lanes[0].closing
    assert [line.is_closing() for line in server.connections] == [True]
