"""ProcessRunners: runners in child processes of this one, restarted when they die."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

from agl.agents.base import Agent
from agl.agents.function import as_agent
from agl.errors import ConfigError
from agl.runners.base import check_runner_settings
from agl.runners.grading import Grader
from agl.runners.hooks import Hook
from agl.runners.orders import Order
from agl.runners.pool import ProcessPool
from agl.runners.transfer import packed
from agl.store.base import LightningStore

log = logging.getLogger(__name__)


class ProcessRunners:
    """Settings of a pool of runner processes on this machine.

    Args:
        processes: how many.
        max_concurrency: the most attempts at once in each of them.
        heartbeat_seconds: how often the store hears that the attempts live.
        drain_seconds: how long attempts in hand may go on when the run is over; then they are stopped and handed back.
        max_crashes: a process that dies so often in a row, without having brought one attempt to its end in between,
            ends the run.
        follow_libraries: record spans of libraries instrumented with OpenTelemetry, too.
    """

    def __init__(
        self,
        *,
        processes: int = 2,
        max_concurrency: int = 32,
        heartbeat_seconds: float = 5.0,
        drain_seconds: float = 10.0,
        max_crashes: int = 5,
        follow_libraries: bool = True,
    ) -> None:
        if processes < 1:
            raise ConfigError(f"runner.processes={processes} must be at least 1")
        if max_crashes < 1:
            raise ConfigError(f"runner.max_crashes={max_crashes} must be at least 1")
        check_runner_settings(max_concurrency, heartbeat_seconds, drain_seconds)
        self.processes = processes
        self.max_concurrency = max_concurrency
        self.heartbeat_seconds = heartbeat_seconds
        self.drain_seconds = drain_seconds
        self.max_crashes = max_crashes
        self.follow_libraries = follow_libraries

    @property
    def needs_store_url(self) -> bool:
        """True: the processes reach the store over HTTP."""
        return True

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
    ) -> AsyncGenerator[ProcessPool]:
        """Keep the processes running until the block ends; then they finish what is in hand, for ``drain_seconds``.

        Raises:
            ConfigError: the store is not served, or the agent cannot be sent to another process or loaded there.
            RunStoppedError: a process dies again and again; its last words are in the message.
        """
        if store_url is None:
            raise ConfigError(
                "runner processes reach the store over HTTP, and this one is not served: give --store-url"
            )
        del note
        order = Order(
            store_url=store_url,
            store_token=store_token,
            identity=(await store.health())["identity"],
            agent=as_agent(agent),
            grader=grader if grader is None or isinstance(grader, Grader) else Grader(grader),
            hooks=hooks,
            run_id=run_id,
            max_concurrency=self.max_concurrency,
            heartbeat_seconds=self.heartbeat_seconds,
            drain_seconds=self.drain_seconds,
            follow_libraries=self.follow_libraries,
        )
        pool = ProcessPool(packed(order), drain_seconds=self.drain_seconds, max_crashes=self.max_crashes)
        stop = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                slots = [
                    group.create_task(pool.keep_one(slot, stop), name=f"agl-runner-process-{slot}")
                    for slot in range(1, self.processes + 1)
                ]
                yield pool
                stop.set()
                await asyncio.wait(slots)
        except BaseExceptionGroup as failed:
            first = failed.exceptions[0]
            raise first from first.__cause__  # as it was raised, without the group around it
