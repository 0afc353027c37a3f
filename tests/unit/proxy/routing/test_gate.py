"""New calls wait while those under way end."""

from __future__ import annotations

import asyncio

import pytest

from agl.errors import InferenceError
from agl.proxy.routing.gate import Gate


async def test_a_pause_holds_new_calls_until_it_ends():
    gate = Gate()
    async with gate.paused() as drained:
        assert drained
        waiting = asyncio.create_task(gate.enter(seconds=None))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert gate.under_way == 0
    await waiting
    assert gate.under_way == 1


async def test_a_drain_ends_with_the_last_call_under_way():
    gate = Gate()
    await gate.enter(seconds=None)
    await gate.enter(seconds=None)
    gate.pause()
    drain = asyncio.create_task(gate.drain())
    gate.leave()
    await asyncio.sleep(0)
    assert not drain.done()
    gate.leave()
    assert await drain


async def test_a_drain_says_when_calls_are_left():
    gate = Gate()
    await gate.enter(seconds=None)
    async with gate.paused(drain_seconds=0.001) as drained:
        assert not drained


async def test_a_call_waits_no_longer_than_its_client():
    gate = Gate()
    gate.pause()
    with pytest.raises(InferenceError, match="paused for new weights") as caught:
        await gate.enter(seconds=0.001)
    assert caught.value.status == 503
    assert gate.under_way == 0


async def test_two_pauses_need_two_resumes():
    gate = Gate()
    gate.pause()
    async with gate.paused():
        pass
    waiting = asyncio.create_task(gate.enter(seconds=None))
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.resume()
    await waiting
    with pytest.raises(RuntimeError):
        gate.resume()


async def test_a_pause_ends_also_when_the_update_fails():
    gate = Gate()
    with pytest.raises(ValueError, match="broken"):
        async with gate.paused():
            raise ValueError("broken")
    await gate.enter(seconds=0.0)
