"""Recorded rollouts, executed again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agl.errors import InferenceError
from agl.launch.rerun import Rerun, Wanted
from agl.proxy import LLMProxy, ProxyServer
from agl.runners.remote import RemoteRunners
from agl.store.sqlite import InMemoryLightningStore
from agl.types import (
    LLM,
    ModelEndpoint,
    PromptTemplate,
    ProxyLLM,
    Rollout,
    RolloutConfig,
    RolloutRequest,
    RunQuery,
)


class SilentProxy(LLMProxy):
    """Serves without a socket, and remembers for whom and from where."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.served: list[tuple[Any, int, dict[str, ModelEndpoint]]] = []

    @asynccontextmanager
    async def serving(self, store: Any, upstream: Any) -> AsyncGenerator[ProxyServer]:
        self.served.append((upstream, self.port, self.endpoints))
        yield ProxyServer(url="http://proxy:1", api_key="secret-of-this-proxy")


@pytest.fixture
async def store() -> AsyncIterator[InMemoryLightningStore]:
    async with InMemoryLightningStore() as store:
        yield store


async def ended(store: InMemoryLightningStore, **changes: Any) -> Rollout:
    resources = {
        "llm": ProxyLLM(base_url="http://gone:1", model="m", sampling={"top_p": 1.0}, policy_version=3),
        "prompt": PromptTemplate(template="hello"),
        "route": ModelEndpoint(model="m", urls=("http://gone:2/v1",)),
    }
    named = await store.add_resources(resources, run_id="run")
    request = RolloutRequest(
        task=5,
        run_id="run",
        mode="val",
        resources_id=named.resources_id,
        metadata={"seed": 1, "abandoned": True},
        config=RolloutConfig(timeout_seconds=30.0),
    )
    held = await store.start_rollout(request.model_copy(update=changes))
    return (
        await store.update_attempt(
            held.rollout.rollout_id, held.attempt.attempt_id, status="succeeded", reward=1.0
        )
    ).rollout


async def test_the_same_task_runs_again_with_the_recorded_resources_behind_this_processs_proxy(
    store: InMemoryLightningStore,
) -> None:
    seen: list[Any] = []

    async def agent(
        task: int, llm: LLM, prompt: PromptTemplate, resources: dict[str, Any], rollout: Rollout
    ) -> float:
        seen.append((task, llm.model, llm.sampling, prompt.template, sorted(resources)))
        seen.append((llm.base_url.split("/rollout/")[0], rollout.mode, rollout.config.timeout_seconds))
        return task / 10

    old = await ended(store)
    waiting = await store.enqueue_rollout(RolloutRequest(task=99, run_id="run"))
    rerun = Rerun(agent=agent, proxy=SilentProxy(), runner=RemoteRunners(), name="light")
    (new,) = await rerun.run(store, [Wanted(rollout=old, metadata={"why": "test"})], purpose="replay")
    assert seen == [
        (5, "m", {"top_p": 1.0}, "hello", ["llm", "prompt"]),
        ("http://proxy:1", "val", 30.0),
    ]
    assert (new.status, new.reward, new.metadata) == ("succeeded", 0.5, {"seed": 1, "why": "test"})
    assert (await store.get_rollout_by_id(waiting.rollout_id)).status == "pending"
    runs = (await store.query_runs(RunQuery())).items
    assert [(run.run_id, run.name, run.command, run.status) for run in runs] == [
        (new.run_id, "light", "replay", "succeeded")
    ]


async def test_where_the_record_answers_all_every_way_to_a_model_is_closed(
    store: InMemoryLightningStore,
) -> None:
    proxy = SilentProxy(
        port=4748,
        endpoints={
            "big": ModelEndpoint(
                model="m",
                urls=("https://provider/v1",),
                api_key_env="NOT_SET",
                upstream="anthropic",
                priority=2,
            )
        },
    )

    async def agent(task: int) -> float:
        return 1.0

    rerun = Rerun(agent=agent, proxy=proxy, inference=None)
    await rerun.run(store, [Wanted(rollout=await ended(store))], purpose="replay", record_only=True)
    ((engine, port, endpoints),) = rerun.proxy.served  # type: ignore[attr-defined]
    assert (engine.model, engine.policy_version, port) == ("m", 3, 0)
    assert endpoints == {"big": ModelEndpoint(model="m", upstream="engine", priority=2)}
    with pytest.raises(InferenceError, match="all its answers in the record"):
        await engine.complete_chat({})
    assert proxy.endpoints["big"].urls == ("https://provider/v1",)


async def test_other_resources_ids_groups_and_limits_can_be_given(store: InMemoryLightningStore) -> None:
    async def agent(prompt: PromptTemplate) -> float:
        return float(len(prompt.template))

    wanted = Wanted(
        rollout=await ended(store),
        rollout_id="mine",
        group_id="g",
        resources={"prompt": PromptTemplate(template="xyz")},
        config=RolloutConfig(max_attempts=2),
    )
    (new,) = await Rerun(agent=agent, proxy=SilentProxy()).run(store, [wanted], purpose="retry")
    assert (new.rollout_id, new.group_id, new.reward, new.config.max_attempts) == ("mine", "g", 3.0, 2)


async def test_an_agent_that_had_no_resources_gets_none_now(store: InMemoryLightningStore) -> None:
    async def agent(resources: dict[str, Any]) -> float:
        return float(len(resources))

    old = await ended(store, resources_id=None, run_id=None)
    assert old.resources_id is not None  # the claim pinned the latest
    bare = old.model_copy(update={"resources_id": None})
    (new,) = await Rerun(agent=agent, proxy=SilentProxy()).run(store, [Wanted(rollout=bare)], purpose="retry")
    assert new.reward == 0.0


async def test_a_failure_to_start_leaves_no_rollout_open(store: InMemoryLightningStore) -> None:
    class Broken(SilentProxy):
        @asynccontextmanager
        async def serving(self, store: Any, upstream: Any) -> AsyncGenerator[ProxyServer]:
            raise OSError("no port")
            yield

    async def agent(task: int) -> float:
        return 1.0

    with pytest.raises(OSError, match="no port"):
        await Rerun(agent=agent, proxy=Broken()).run(
            store, [Wanted(rollout=await ended(store))], purpose="retry"
        )
    (run,) = (await store.query_runs(RunQuery())).items
    assert run.status == "failed"
    assert (await store.statistics())["rollouts"].get("pending", 0) == 0
