"""The newest version with endpoints counts; others change nothing."""

from __future__ import annotations

from agl.proxy.routing.follow import EndpointFeed, endpoints_of
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ModelEndpoint, ProxyLLM

JUDGE = ModelEndpoint(model="judge", urls=("http://x/v1",))
POLICY = ProxyLLM(base_url="http://proxy", model="policy")


async def test_a_store_without_resources_has_no_endpoints():
    async with InMemoryLightningStore() as store:
        assert await EndpointFeed(store).changes() is None


async def test_each_version_with_endpoints_is_told_once():
    async with InMemoryLightningStore() as store:
        feed = EndpointFeed(store)
        await store.add_resources({"judge": JUDGE, "llm": POLICY})
        named = await feed.changes()
        assert endpoints_of(named) == {"judge": JUDGE}
        assert await feed.changes() is None


async def test_versions_without_endpoints_change_nothing():
    async with InMemoryLightningStore() as store:
        feed = EndpointFeed(store)
        await store.add_resources({"judge": JUDGE})
        assert (await feed.changes()).version == 1
        for _ in range(3):
            await store.add_resources({"llm": POLICY})
        assert await feed.changes() is None
        await store.add_resources({"judge": JUDGE})
        await store.add_resources({"llm": POLICY})
        assert (await feed.changes()).version == 5


async def test_a_proxy_that_starts_late_finds_endpoints_under_hundreds_of_newer_versions():
    async with InMemoryLightningStore() as store:
        await store.add_resources({"old": JUDGE})
        await store.add_resources({"judge": JUDGE})
        for _ in range(450):
            await store.add_resources({"llm": POLICY})
        assert endpoints_of(await EndpointFeed(store).changes()) == {"judge": JUDGE}
