"""The engine as a server: its calls are held while it is paused, and say which weights answered."""

from __future__ import annotations

import asyncio

import pytest

from agl.errors import InferenceError
from agl.proxy.refusal import CallRefusedError
from agl.proxy.routing.engine import EngineServer
from agl.proxy.upstream import CallContext

CHAT = {"model": "policy"}
ANYBODY = CallContext()


class Engine:
    """Answers once ``gate`` is set, with its version only where ``says`` is."""

    model = "policy"
    policy_version = 3
    says: int | None = None

    def __init__(self):
        self.gate = asyncio.Event()
        self.gate.set()
        self.num_begun = 0
        self.begun = asyncio.Semaphore(0)

    async def complete_chat(self, request):
        self.num_begun += 1
        self.begun.release()
        await self.gate.wait()
        return {"choices": []} | ({} if self.says is None else {"policy_version": self.says})

    async def stream_chat(self, request):
        yield {"choices": [1]}
        self.num_begun += 1
        self.begun.release()
        await self.gate.wait()
        yield {"choices": []}


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def server(engine, clock):
    return EngineServer(engine, clock=clock)


async def read(server):
    return [chunk async for chunk in server.stream(CHAT, ANYBODY)]


async def test_a_pause_waits_for_plain_and_streamed_calls_and_holds_new_ones(server, engine):
    engine.gate.clear()
    under_way = [asyncio.create_task(server.complete(CHAT, ANYBODY)), asyncio.create_task(read(server))]
    for _ in range(2):
        await engine.begun.acquire()
    paused = server.gate.paused()
    pausing = asyncio.create_task(paused.__aenter__())
    await asyncio.sleep(0)
    late = [asyncio.create_task(server.complete(CHAT, ANYBODY)), asyncio.create_task(read(server))]
    await asyncio.sleep(0)
    assert not pausing.done()
    engine.gate.set()
    assert await pausing
    assert (await under_way[0])["policy_version"] == 3
    assert {chunk["policy_version"] for chunk in await under_way[1]} == {3}
    assert engine.num_begun == 2
    engine.policy_version = 4
    await paused.__aexit__(None, None, None)
    assert (await late[0])["policy_version"] == 4
    assert {chunk["policy_version"] for chunk in await late[1]} == {4}


async def test_a_call_that_a_swap_did_not_wait_for_says_both_versions(server, engine):
    engine.gate.clear()
    calls = [asyncio.create_task(server.complete(CHAT, ANYBODY)), asyncio.create_task(read(server))]
    for _ in range(2):
        await engine.begun.acquire()
    async with server.gate.paused(drain_seconds=0) as drained:
        assert not drained
        engine.policy_version = 4
    engine.gate.set()
    plain, chunks = await asyncio.gather(*calls)
    assert (plain["policy_version"], plain["policy_version_end"]) == (3, 4)
    assert [chunk["policy_version"] for chunk in chunks] == [3, 4]


async def test_what_the_engine_says_of_its_weights_stands(server, engine):
    engine.says = 1
    assert await server.complete(CHAT, ANYBODY) == {"choices": [], "policy_version": 1}


async def test_a_call_is_held_no_longer_than_its_client_waits(server, clock):
    async with server.gate.paused():
        with pytest.raises(InferenceError, match="paused") as caught:
            await server.complete(CHAT, CallContext(deadline=clock.now))
    assert caught.value.status == 503


async def test_a_client_that_leaves_while_it_is_held_is_not_waited_for(server):
    async with server.gate.paused():
        held = asyncio.create_task(server.complete(CHAT, ANYBODY))
        await asyncio.sleep(0)
        held.cancel()
        await asyncio.wait([held])
        assert await server.gate.drain(seconds=0)


async def test_it_counts_where_the_engine_does_and_has_no_embeddings(server, engine):
    assert server.model == "policy"
    assert await server.count_tokens(CHAT, ANYBODY) is None

    async def count_tokens(request):
        return len(request["model"])

    engine.count_tokens = count_tokens
    assert await server.count_tokens(CHAT, ANYBODY) == 6
    with pytest.raises(CallRefusedError) as caught:
        await server.embed({"model": "policy"})
    assert caught.value.status == 404
    assert await server.probe() is None
    assert not server.takes(CallContext(native_only=caught.value))
    await server.aclose()
