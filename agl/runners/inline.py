"""InlineRunners: one runner in the caller's own process and event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

from agl.agents.base import Agent
from agl.runners.base import check_runner_settings
from agl.runners.grading import Grader
from agl.runners.hooks import Hook
from agl.runners.runner import LitAgentRunner, RunnerStats
from agl.store.base import LightningStore

log = logging.getLogger(__name__)


class InlineRunners:
    """Settings of a runner beside the algorithm, in one process.

    Args:
        max_concurrency: the most attempts at once.
        heartbeat_seconds: how often the store hears that the attempts live.
        drain_seconds: how long attempts in hand may go on when the run is over; then they are stopped and handed back.
        follow_libraries: record spans of libraries instrumented with OpenTelemetry, too.
    """

    def __init__(
        self,
        max_concurrency: int = 64,
        heartbeat_seconds: float = 5.0,
        drain_seconds: float = 10.0,
        follow_libraries: bool = True,  # noqa: FBT001, FBT002 - a setting, given by name
    ) -> None:
        check_runner_settings(max_concurrency, heartbeat_seconds, drain_seconds)
        self.max_concurrency = max_concurrency
        self.heartbeat_seconds = heartbeat_seconds
        self.drain_seconds = drain_seconds
        self.follow_libraries = follow_libraries

    @property
    def needs_store_url(self) -> bool:
        """False: the runner calls the store itself."""
        return False

    @asynccontextmanager
    async def running(
        self,
        store: LightningStore,
        agent: Agent | Callable[..., object],
        *,
        run_id: str | None = None,
        grader: Callable[..., object] | Grader | None = None,
        hooks: Sequence[Hook | type[Hook] | str] = (),
        store_url: str | None = None,
        store_token: str | None = None,
        note: Callable[[str], None] = log.info,
    ) -> AsyncGenerator[LitAgentRunner]:
        """Run a runner until the block ends; then it finishes what is in hand, for ``drain_seconds`` at most.

        When the runner itself fails, the block is cancelled and the runner's error raised here. When the block fails,
        the attempts in hand are stopped at once and their rollouts handed back.
        """
        del note
        runner = LitAgentRunner(
            store,
            agent,
            max_concurrency=self.max_concurrency,
            heartbeat_seconds=self.heartbeat_seconds,
            run_id=run_id,
            grader=grader,
            hooks=hooks,
            store_url=store_url,
            store_token=store_token,
            follow_libraries=self.follow_libraries,
        )
        stop = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                running = group.create_task(runner.run(stop), name="agl-runner")
                yield runner
                stop.set()
                await _drained(running, self.drain_seconds)
        except BaseExceptionGroup as failed:
            first = failed.exceptions[0]
            raise first from first.__cause__  # as it was raised, without the group around it


async def _drained(running: asyncio.Task[RunnerStats], seconds: float) -> None:
    await asyncio.wait((running,), timeout=seconds)
    if not running.done():
        log.warning("the attempts in hand did not end within drain_seconds=%g: they are stopped", seconds)
        running.cancel()
        await asyncio.wait((running,))
