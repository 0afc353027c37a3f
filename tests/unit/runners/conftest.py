"""A real store in memory and a short way to run rollouts on it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from agl.runners.runner import LitAgentRunner, RunnerStats
from agl.store.sqlite import InMemoryLightningStore
from agl.types import Rollout, RolloutConfig, RolloutRequest, Span, SpanQuery

RunTasks = Callable[..., Awaitable[list[Rollout]]]


@pytest.fixture
async def store() -> AsyncIterator[InMemoryLightningStore]:
    async with InMemoryLightningStore() as store:
        yield store


@pytest.fixture
def run_tasks(store: InMemoryLightningStore) -> RunTasks:
    """Run the agent on every task, to the end; ``run_tasks.stats`` are the runner's counts."""

    async def run(
        agent: Any, tasks: list[Any], *, config: RolloutConfig | None = None, **settings: Any
    ) -> list[Rollout]:
        requests = [RolloutRequest(task=task, config=config or RolloutConfig()) for task in tasks]
        ids = [rollout.rollout_id for rollout in await store.enqueue_many_rollouts(requests)]
        stop = asyncio.Event()
        running = asyncio.create_task(LitAgentRunner(store, agent, **settings).run(stop))
        waiting = asyncio.create_task(store.wait_for_rollouts(ids, timeout_seconds=30))
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        run.stats = await running  # type: ignore[attr-defined]
        return await waiting

    run.stats = RunnerStats()  # type: ignore[attr-defined]
    return run


@pytest.fixture
def spans_of(store: InMemoryLightningStore) -> Callable[[Rollout], Awaitable[list[Span]]]:
    async def spans(rollout: Rollout) -> list[Span]:
        return list((await store.query_spans(SpanQuery(rollout_id=rollout.rollout_id))).items)

    return spans
