"""All parts of a training run in one process: opened in the order of the pipeline, closed in reverse."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

from agl.agents.base import Agent
from agl.algorithms.serving import ServedPolicy
from agl.inference.base import Engine
from agl.learners.base import Learner
from agl.proxy import LLMProxy
from agl.runners.inline import InlineRunners
from agl.store.base import LightningStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a run is made of, built but not started."""

    store: LightningStore
    engine: Engine
    learner: Learner | None
    proxy: LLMProxy
    runner: InlineRunners
    agent: Agent


@asynccontextmanager
async def running(parts: Parts, *, run_id: str) -> AsyncGenerator[ServedPolicy]:
    """Start engine, learner, proxy and runner on the open store; stop all of them on the way out, whatever happened."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(parts.engine)
        if parts.learner is not None:
            await stack.enter_async_context(parts.learner)
        server = await stack.enter_async_context(parts.proxy.serving(parts.store, parts.engine))
        await stack.enter_async_context(parts.runner.running(parts.store, parts.agent, run_id=run_id))
        yield ServedPolicy(
            engine=parts.engine,
            store=parts.store,
            proxy_url=server.url,
            run_id=run_id,
            new_id=lambda: uuid4().hex[:8],
            api_key=server.api_key,
        )
