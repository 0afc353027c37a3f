"""Weights change under calls of real clients: no call's record is silent about a change that it saw."""

from __future__ import annotations

import asyncio

import pytest
from fake_engine import CountingEngine
from openai import AsyncOpenAI
from served_proxy import choice_of, spans_of

from agl.algorithms.serving import ServedPolicy
from agl.proxy import LLMProxy
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ModelEndpoint, PolicyWeights, RolloutRequest
from agl.types import attributes as key

HELLO = [{"role": "user", "content": "hello"}]


class MovingEngine(CountingEngine):
    """Says in its answer which weights it had at its beginning and at its end, and nowhere else; swaps at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = 0
        self.swapped_under: list[int] = []
        """How many calls were under way at each swap."""

    async def complete_chat(self, request):
        first = self.policy_version
        self.under_way += 1
        try:
            for _ in range(20):
                await asyncio.sleep(0)
        finally:
            self.under_way -= 1
        choice = choice_of(0, f"{first} {self.policy_version}", [7, 2])
        return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "choices": [choice]}

    async def stream_chat(self, request):
        first = self.policy_version
        self.under_way += 1
        try:
            yield piece({"role": "assistant", "content": f"{first} "})
            for _ in range(20):
                await asyncio.sleep(0)
            yield piece({"content": str(self.policy_version)}, finish="stop")
        finally:
            self.under_way -= 1

    async def load_weights(self, weights):
        self.swapped_under.append(self.under_way)
        await super().load_weights(weights)


def piece(delta, *, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "choices": [choice]}


async def said_by(client, *, stream):
    answer = await client.chat.completions.create(model="policy", messages=HELLO, stream=stream)
    if not stream:
        return answer.choices[0].message.content
    return "".join([chunk.choices[0].delta.content or "" async for chunk in answer])


@pytest.mark.parametrize("drain_seconds", [30.0, 0.0], ids=["drained", "not waited for"])
@pytest.mark.parametrize("upstream", [None, "engine"], ids=["default", "endpoint"])
async def test_no_call_straddles_a_swap_unmarked(upstream, drain_seconds):
    engine = MovingEngine()
    endpoints = {"own": ModelEndpoint(model="policy", upstream="engine")} if upstream else {}
    async with (
        InMemoryLightningStore() as store,
        LLMProxy(endpoints=endpoints).serving(store, engine) as server,
    ):
        policy = ServedPolicy(
            engine=engine,
            store=store,
            proxy_url=server.url,
            run_id="run",
            new_id=lambda: "s",
            paused=lambda: server.router.engine_paused(drain_seconds=drain_seconds),
        )
        resources = await policy.resources_id("train", {})
        started = await store.start_rollout(RolloutRequest(task=1, resources_id=resources))
        ids = started.attempt.rollout_id, started.attempt.attempt_id
        llm = (await store.get_resources_by_id(resources)).resources["llm"].for_attempt(*ids)
        done = asyncio.Event()

        async def update():
            while not done.is_set():
                await policy.load(PolicyWeights(policy_version=engine.policy_version + 1, tensors={}))
                await asyncio.sleep(0.002)

        async with AsyncOpenAI(base_url=llm.base_url, api_key="none", max_retries=0) as client:
            updates = asyncio.create_task(update())
            said = await asyncio.gather(*(said_by(client, stream=bool(n % 2)) for n in range(80)))
            done.set()
            await updates
        spans = await spans_of(store, started.attempt)
    recorded = []
    for span in spans:
        first = span.attributes[key.POLICY_VERSION]
        recorded.append((first, span.attributes.get(key.POLICY_VERSION_END, first)))
    assert sorted(recorded) == sorted(tuple(map(int, text.split())) for text in said)
    assert len(engine.swapped_under) > 3
    if drain_seconds:
        assert engine.swapped_under == [0] * len(engine.swapped_under)
        assert all(first == last for first, last in recorded)
    else:
        assert any(first != last for first, last in recorded)
