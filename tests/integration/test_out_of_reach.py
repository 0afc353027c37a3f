"""Links cut under a runner at work: what its agents fail at meanwhile is executed again, and is no error of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from awaited import soon
from cut_link import Link

from agl.runners.runner import LitAgentRunner
from agl.store.base import LightningStore
from agl.store.client import LightningStoreClient
from agl.store.server import StoreServer
from agl.store.sqlite import InMemoryLightningStore
from agl.types import LLM, AttemptQuery, ProxyLLM, Rollout, RolloutConfig, RolloutRequest

CONFIG = RolloutConfig(
    timeout_seconds=60, unresponsive_seconds=30, max_attempts=3, retry_on=("unresponsive",)
)


@pytest.fixture
async def served() -> AsyncIterator[tuple[LightningStore, str]]:
    async with InMemoryLightningStore() as store, StoreServer(store, port=0).serving() as url:
        yield store, url


@asynccontextmanager
async def link_to(url: str) -> AsyncIterator[Link]:
    link = Link(url)
    await link.mend()
    try:
        yield link
    finally:
        await link.close()


@asynccontextmanager
async def at_work(store: LightningStore, agent: Callable[..., object]) -> AsyncIterator[None]:
    stop = asyncio.Event()
    running = asyncio.create_task(LitAgentRunner(store, agent, heartbeat_seconds=0.2).run(stop))
    try:
        yield
    finally:
        stop.set()
        await running


async def ends_of(store: LightningStore, rollout: Rollout) -> list[str]:
    query = AttemptQuery(rollout_id=rollout.rollout_id)
    return [attempt.status for attempt in (await store.query_attempts(query)).items]


async def test_an_agent_that_fails_while_the_store_is_cut_off_gets_another_attempt(served) -> None:
    store, url = served
    began, fail = asyncio.Event(), asyncio.Event()

    async def agent(attempt) -> float:
        if attempt.sequence_id == 1:
            began.set()
            await fail.wait()
            raise ConnectionError("the network is gone")
        return 1.0

    async with link_to(url) as link, LightningStoreClient(link.url) as client, at_work(client, agent):
        await store.enqueue_rollout(RolloutRequest(task=1, rollout_id="r", config=CONFIG))
        await began.wait()
        await link.cut()
        fail.set()

        async def noticed() -> bool:
            return client.out_of_reach_at is not None

        await soon(noticed, what="the cut")
        await link.mend()
        (rollout,) = await store.wait_for_rollouts(["r"], timeout_seconds=30)
    assert (rollout.status, rollout.reward) == ("succeeded", 1.0)
    assert await ends_of(store, rollout) == ["unresponsive", "succeeded"]


async def test_an_agent_that_cannot_reach_the_proxy_gets_another_attempt_once_that_answers(
    served, caplog: pytest.LogCaptureFixture
) -> None:
    store, url = served

    async def agent(llm: LLM) -> float:
        host, port = llm.base_url.removeprefix("http://").split("/")[0].split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        return 1.0

    async with link_to(url) as link, at_work(store, agent):  # what listens at its other end does not matter
        await link.cut()
        await store.add_resources({"llm": ProxyLLM(base_url=link.url, model="policy")})
        await store.enqueue_rollout(RolloutRequest(task=1, rollout_id="r", config=CONFIG))

        async def noticed() -> bool:
            return f"the proxy {link.url} is out of reach: rollout r waits for it" in caplog.text

        await soon(noticed, what="the wait for the proxy")
        await link.mend()
        (rollout,) = await store.wait_for_rollouts(["r"], timeout_seconds=30)
    assert (rollout.status, rollout.reward) == ("succeeded", 1.0)
    assert await ends_of(store, rollout) == ["unresponsive", "succeeded"]
