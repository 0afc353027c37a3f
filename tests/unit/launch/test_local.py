"""Parts start in the order of the pipeline and stop in reverse."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from agl.launch.local import Parts, running
from agl.store.sqlite import InMemoryLightningStore


class Part:
    """Writes down when it starts and stops."""

    def __init__(self, name: str, log: list[str], *, fails: bool = False) -> None:
        self.name, self.log, self.fails = name, log, fails
        self.model, self.policy_version, self.trainable = "policy", 0, True

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
            yield SimpleNamespace(url="http://127.0.0.1:9", api_key="token")

    @asynccontextmanager
    async def running(self, store: object, agent: object, *, run_id: str) -> AsyncGenerator[None]:
        async with self:
            yield


def parts(store: InMemoryLightningStore, log: list[str], *, runner_fails: bool = False) -> Parts:
    return Parts(
        store=store,
        engine=Part("engine", log),  # type: ignore[arg-type]
        learner=Part("learner", log),  # type: ignore[arg-type]
        proxy=Part("proxy", log),  # type: ignore[arg-type]
        runner=Part("runner", log, fails=runner_fails),  # type: ignore[arg-type]
        agent=object(),  # type: ignore[arg-type]
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
            async with running(parts(store, log, runner_fails=True), run_id="run"):
                pass
    assert log[-3:] == ["-proxy", "-learner", "-engine"]
