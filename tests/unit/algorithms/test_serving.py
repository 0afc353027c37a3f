"""The served policy: what agents are pointed to."""

from __future__ import annotations

from fake_engine import CountingEngine

from agl.algorithms.serving import ServedPolicy
from agl.store.sqlite import InMemoryLightningStore
from agl.types import PolicyWeights, ProxyLLM


async def test_each_version_and_purpose_is_published_once() -> None:
    async with InMemoryLightningStore() as store:
        policy = ServedPolicy(
            engine=CountingEngine(), store=store, proxy_url="http://p", run_id="run", new_id=lambda: "s1"
        )
        first = await policy.resources_id("train", {"temperature": 1.0})
        assert await policy.resources_id("train", {"temperature": 1.0}) == first
        await policy.load(PolicyWeights(policy_version=1, tensors={}))
        second = await policy.resources_id("train", {"temperature": 1.0})
        assert second != first
        llm = (await store.get_resources_by_id(second)).resources["llm"]
    assert isinstance(llm, ProxyLLM)
    assert (llm.policy_version, llm.base_url, llm.sampling) == (1, "http://p", {"temperature": 1.0})


async def test_another_process_of_the_same_run_publishes_its_own_address() -> None:
    async with InMemoryLightningStore() as store:
        ids = [
            await ServedPolicy(
                engine=CountingEngine(),
                store=store,
                proxy_url=url,
                run_id="run",
                new_id=lambda url=url: url[-1],
            ).resources_id("train", {})
            for url in ("http://1", "http://2")
        ]
        urls = [(await store.get_resources_by_id(one)).resources["llm"].base_url for one in ids]
    assert urls == ["http://1", "http://2"]


async def test_another_model_behind_the_proxy_is_published_and_reached_by_its_name() -> None:
    async with InMemoryLightningStore() as store:
        policy = ServedPolicy(
            engine=CountingEngine(), store=store, proxy_url="http://p", run_id="run", new_id=lambda: "s"
        )
        resources_id = await policy.resources_id("judge", {"temperature": 0.0}, model="judge")
        llm = (await store.get_resources_by_id(resources_id)).resources["llm"]
        assert isinstance(llm, ProxyLLM)
        assert (llm.model, llm.sampling) == ("judge", {"temperature": 0.0})
        assert policy.llm_of_attempt("r", "a", model="judge", sampling={}).model == "judge"
        assert policy.llm_of_attempt("r", "a", sampling={}).model == "policy"


async def test_resources_of_an_algorithms_own_get_the_proxys_present_address() -> None:
    async with InMemoryLightningStore() as store:
        policy = ServedPolicy(
            engine=CountingEngine(), store=store, proxy_url="http://here", run_id="r", new_id=lambda: "s"
        )
        old = ProxyLLM(base_url="http://gone", model="judge", sampling={"top_k": 1}, policy_version=9)
        resources_id = await policy.publish("mine", {"llm": old, "n": 3})
        named = await store.get_resources_by_id(resources_id)
    assert resources_id == "r-mine-s"
    assert named.resources["llm"] == ProxyLLM(base_url="http://here", model="judge", sampling={"top_k": 1})
    assert named.resources["n"] == 3


async def test_a_stage_hands_out_its_own_resources_under_ids_of_its_own() -> None:
    async with InMemoryLightningStore() as store:
        policy = ServedPolicy(
            engine=CountingEngine(),
            store=store,
            proxy_url="http://p",
            run_id="r",
            new_id=lambda: "s",
            resources={"prompt": "old"},
        )
        whole = await policy.resources_id("train", {})
        stage = await policy.of_stage("sft", {"prompt": "new"}).resources_id("train", {})
        prompts = [(await store.get_resources_by_id(one)).resources["prompt"] for one in (whole, stage)]
    assert whole != stage
    assert prompts == ["old", "new"]
