"""Runs of an agent on a store that is served over HTTP with a token, as external programs need it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agl.runners.runner import LitAgentRunner
from agl.store.server import StoreServer
from agl.store.sqlite import InMemoryLightningStore
from agl.types import Resource, Rollout, RolloutConfig, RolloutRequest, Span, SpanQuery

TOKEN = "admin-secret"


class Runs:
    """What came of some tasks: rollouts in their order, spans by rollout, the runner's counts."""

    def __init__(self) -> None:
        self.rollouts: list[Rollout] = []
        self.spans: dict[str, list[Span]] = {}
        self.stats: Any = None

    def output(self, index: int = 0, stream: str = "stdout") -> str:
        """What the n-th rollout's program wrote."""
        return "".join(
            span.attributes["agl.output.text"]
            for span in self.spans[self.rollouts[index].rollout_id]
            if span.name == "agl.output" and span.attributes["agl.output.stream"] == stream
        )


async def run_tasks(
    agent: Any,
    tasks: Sequence[Any],
    *,
    timeout_seconds: float | None = None,
    resources: dict[str, Resource] | None = None,
    store: InMemoryLightningStore | None = None,
    **settings: Any,
) -> Runs:
    """Run the agent on the tasks; ``store`` is open already, a fresh one is made where none is given."""
    if store is None:
        async with InMemoryLightningStore() as fresh:
            return await run_tasks(
                agent, tasks, timeout_seconds=timeout_seconds, resources=resources, store=fresh, **settings
            )
    runs = Runs()
    async with StoreServer(store, port=0, token=TOKEN).serving() as url:
        if resources:
            await store.add_resources(resources)
        config = RolloutConfig(timeout_seconds=timeout_seconds)
        requests = [RolloutRequest(task=task, config=config) for task in tasks]
        ids = [rollout.rollout_id for rollout in await store.enqueue_many_rollouts(requests)]
        stop = asyncio.Event()
        runner = LitAgentRunner(store, agent, store_url=url, store_token=TOKEN, **settings)
        running = asyncio.create_task(runner.run(stop))
        waiting = asyncio.create_task(store.wait_for_rollouts(ids, timeout_seconds=60))
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        runs.stats = await running
        runs.rollouts = await waiting
        for rollout_id in ids:
            page = await store.query_spans(SpanQuery(rollout_id=rollout_id, limit=1000))
            runs.spans[rollout_id] = list(page.items)
    return runs


def processes_with(text: str) -> list[int]:
    """The living processes whose command line contains ``text``."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                said = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if text in said:
                found.append(int(folder.name))
    return found


async def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for what another process brings about and nothing here can await."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - processes of others tell nobody
            await asyncio.sleep(0.01)
