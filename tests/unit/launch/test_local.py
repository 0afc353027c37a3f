"""Parts start in the order of the pipeline and stop in reverse."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from agl.launch.local import Parts, running, started
from agl.runners.grading import Grader
from agl.store.address import StoreAddress
from agl.store.sqlite import InMemoryLightningStore
from agl.types import PolicyWeights


class Part:
    """Writes down when it starts and stops."""

    def __init__(self, name: str, log: list[str], *, fails: bool = False) -> None:
        self.name, self.log, self.fails = name, log, fails
        self.model, self.policy_version, self.trainable = "policy", 0, True
        self.needs_store_url = False
        self.router: Any = None
        self.given: dict[str, Any] = {}

    async def __aenter__(self) -> Part:
        if self.fails:
            raise RuntimeError(f"{self.name} does not start")
        self.log.append(f"+{self.name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.log.append(f"-{self.name}")

    @asynccontextmanager
    async def serving(self, store: object, upstream: object) -> AsyncGenerator[Any]:
        async with self:
            yield SimpleNamespace(url="http://127.0.0.1:9", api_key="token", router=self.router)

    @asynccontextmanager
    async def running(self, store: object, agent: object, **given: Any) -> AsyncGenerator[None]:
        self.given = given
        async with self:
            yield


class Access(Part):
    """Serves the store without a socket."""

    is_local = True

    @asynccontextmanager
    async def serving(self, store: object, *, token_file: object = None) -> AsyncGenerator[Any]:
        async with self:
            yield StoreAddress(url="http://127.0.0.1:7", token="s3cret")


def parts(store: InMemoryLightningStore, log: list[str], **others: Any) -> Parts:
    built: dict[str, Any] = {name: Part(name, log) for name in ("engine", "learner", "proxy", "runner")}
    return Parts(
        **{
            "store": store,
            **built,
            "agent": object(),
            "store_access": Access("access", log),
            **others,
        }
    )


async def test_parts_stop_in_reverse_order() -> None:
    log: list[str] = []
    async with InMemoryLightningStore() as store, running(parts(store, log), run_id="run") as policy:
        named = await store.get_resources_by_id(await policy.resources_id("train", {}))
        llm = named.resources["llm"]
        assert (llm.base_url, llm.api_key) == ("http://127.0.0.1:9", "token")
    assert log == ["+engine", "+learner", "+proxy", "+runner", "-runner", "-proxy", "-learner", "-engine"]


async def test_a_part_that_does_not_start_stops_the_others() -> None:
    log: list[str] = []
    async with InMemoryLightningStore() as store:
        with pytest.raises(RuntimeError, match="runner does not start"):
            async with running(parts(store, log, runner=Part("runner", log, fails=True)), run_id="run"):
                pass
    assert log[-3:] == ["-proxy", "-learner", "-engine"]


@pytest.mark.parametrize("outside", ["runner", "agent"])
async def test_a_store_is_served_where_a_runner_or_an_agent_is_outside_of_the_process(outside: str) -> None:
    log: list[str] = []
    runner = Part("runner", log)
    runner.needs_store_url = outside == "runner"
    agent = SimpleNamespace(needs_store_url=outside == "agent")
    async with (
        InMemoryLightningStore() as store,
        started(parts(store, log, runner=runner, agent=agent), run_id="run") as served,
    ):
        assert served.store == StoreAddress(url="http://127.0.0.1:7", token="s3cret")
    assert log == [
        "+engine", "+learner", "+access", "+proxy", "+runner",
        "-runner", "-proxy", "-access", "-learner", "-engine",
    ]  # fmt: skip
    assert (runner.given["store_url"], runner.given["store_token"]) == ("http://127.0.0.1:7", "s3cret")


async def test_a_runner_is_given_run_grader_and_hooks_and_no_address_that_it_does_not_need() -> None:
    log: list[str] = []
    runner, grader, hooks = Part("runner", log), Grader(lambda result: 1.0), [object()]
    async with (
        InMemoryLightningStore() as store,
        started(parts(store, log, runner=runner, grader=grader, hooks=hooks), run_id="run", note=log.append),
    ):
        pass
    assert runner.given == {
        "run_id": "run",
        "grader": grader,
        "hooks": hooks,
        "store_url": None,
        "store_token": None,
        "note": log.append,
    }


async def test_agents_can_run_without_an_engine_or_a_proxy_of_this_process() -> None:
    log: list[str] = []
    others = {"engine": None, "learner": None, "proxy": None}
    async with InMemoryLightningStore() as store, started(parts(store, log, **others), run_id=None) as served:
        assert served.proxy is None
    assert log == ["+runner", "-runner"]


async def test_agents_get_resources_beside_the_model() -> None:
    async with (
        InMemoryLightningStore() as store,
        running(parts(store, [], resources={"style": "terse"}), run_id="run") as policy,
    ):
        named = await store.get_resources_by_id(await policy.resources_id("train", {}))
    assert named.resources["style"] == "terse"


async def test_weights_are_swapped_while_the_engines_calls_are_held() -> None:
    log: list[str] = []
    drains: list[float] = []

    @asynccontextmanager
    async def engine_paused(*, drain_seconds: float) -> AsyncGenerator[bool]:
        drains.append(drain_seconds)
        log.append("hold")
        yield True
        log.append("let go")

    async def load_weights(weights: PolicyWeights) -> None:
        log.append(f"version {weights.policy_version}")

    async with InMemoryLightningStore() as store:
        built = parts(store, [])
        built.proxy.router = SimpleNamespace(engine_paused=engine_paused)  # type: ignore[union-attr]
        built.engine.load_weights = load_weights  # type: ignore[union-attr]
        async with running(built, run_id="run") as policy:
            await policy.load(PolicyWeights(policy_version=4, tensors={}))
    assert log == ["hold", "version 4", "let go"]
    assert drains == [30.0]
