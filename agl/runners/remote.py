"""RemoteRunners: no runner here; waits for those that join the store from elsewhere, and notices when all have gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from agl.agents.base import Agent
from agl.errors import ConfigError, RunStoppedError
from agl.runners.grading import Grader
from agl.runners.hooks import Hook
from agl.runners.retry import when_available
from agl.store.base import LightningStore
from agl.types import Worker

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between looks at the store's workers; their coming and going is no event that can be waited for."""
REMINDER_SECONDS = 30.0
"""Between lines about one wait."""


class RemoteRunners:
    """Settings of a run whose runners are started by others: ``agl runner --store-url URL``.

    Args:
        min_workers: so many must have joined before the run begins.
        wait_seconds: the longest wait for them, at the beginning and when all have gone; None is no limit.
        silent_seconds: a runner that was not heard of for so long has gone.
    """

    def __init__(
        self, min_workers: int = 1, wait_seconds: float | None = None, silent_seconds: float = 30.0
    ) -> None:
        if min_workers < 1:
            raise ConfigError(f"runner.min_workers={min_workers} must be at least 1")
        if wait_seconds is not None and not wait_seconds > 0:
            raise ConfigError(f"runner.wait_seconds={wait_seconds} must be above 0, or null for no limit")
        if not silent_seconds > 0:
            raise ConfigError(f"runner.silent_seconds={silent_seconds} must be above 0")
        self.min_workers = min_workers
        self.wait_seconds = wait_seconds
        self.silent_seconds = silent_seconds

    @property
    def needs_store_url(self) -> bool:
        """True: runners come from outside."""
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
    ) -> AsyncGenerator[None]:
        """Wait until enough runners have joined, then watch that not all of them go.

        ``agent``, ``grader`` and ``hooks`` are theirs to know: they are started with the same recipe.

        Raises:
            RunStoppedError: nobody came within ``wait_seconds``.
        """
        del agent, grader, hooks
        command = join_command(store_url or store.location, run_id=run_id, token=store_token is not None)
        crowd = Crowd(store, run_id=run_id, silent_seconds=self.silent_seconds, note=note)
        await crowd.wait(self.min_workers, command=command, limit=self.wait_seconds)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(
                    crowd.watch(command=command, limit=self.wait_seconds), name="agl-remote-runners"
                )
                yield
                watching.cancel()
        except BaseExceptionGroup as failed:
            first = failed.exceptions[0]
            raise first from first.__cause__  # as it was raised, without the group around it


class Crowd:
    """The runners that work for a run.

    Args:
        store: where they report.
        run_id: those of other runs do not count.
        silent_seconds: one not heard of for so long has gone.
        note: takes lines for people.
        sleep: as ``asyncio.sleep``.
        clock: seconds, never going back; None is the event loop's.
    """

    def __init__(
        self,
        store: LightningStore,
        *,
        run_id: str | None,
        silent_seconds: float,
        note: Callable[[str], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._store, self._run_id, self._silent_seconds = store, run_id, silent_seconds
        self._note, self._sleep = note, sleep
        self._clock = clock or asyncio.get_running_loop().time

    async def here(self) -> list[Worker]:
        """Return the runners that take this run's rollouts."""
        workers = await when_available(
            lambda: self._store.get_active_workers(within_seconds=self._silent_seconds),
            what="looking who has joined",
        )
        return [worker for worker in workers if works_for(worker, self._run_id)]

    async def watch(self, *, command: str, limit: float | None) -> None:
        """Look after the crowd, for ever: when all have gone, wait for one to come.

        Raises:
            RunStoppedError: none came within ``limit`` seconds.
        """
        while True:
            await self.wait(1, command=command, limit=limit)
            await self._sleep(LOOK_SECONDS)

    async def wait(self, wanted: int, *, command: str, limit: float | None) -> None:
        """Return when so many are here; say once in a while who is waited for.

        Raises:
            RunStoppedError: they did not come within ``limit`` seconds.
        """
        begin, reminder = self._clock(), 0.0
        here = await self.here()
        if len(here) >= wanted:
            return
        while len(here) < wanted:
            waited = self._clock() - begin
            if limit is not None and waited >= limit:
                raise RunStoppedError(
                    f"{len(here)} of {wanted} runners joined within wait_seconds={limit:g}; start them with: {command}"
                )
            if waited >= reminder:
                reminder = waited + REMINDER_SECONDS
                since = f" for {waited:.0f} s" if waited >= 1 else ""
                self._note(
                    f"waiting for runners{since}: {len(here)} of {wanted} joined. Start one, with this run's recipe:"
                    f" {command}"
                )
            left = LOOK_SECONDS if limit is None else min(LOOK_SECONDS, limit - waited)
            await self._sleep(left)
            here = await self.here()
        hosts = ", ".join(dict.fromkeys(worker.host or worker.worker_id for worker in here))
        self._note(f"{len(here)} {'runner has' if len(here) == 1 else 'runners have'} joined, on {hosts}")


def works_for(worker: Worker, run_id: str | None) -> bool:
    """Tell whether a worker has not said goodbye and takes rollouts of the run."""
    its_run = worker.stats.get("run_id")
    return not worker.stats.get("ended") and (its_run is None or run_id is None or its_run == run_id)


def join_command(store_url: str, *, run_id: str | None, token: bool) -> str:
    """Return what to type to join, with the recipe to be filled in and without the secret."""
    secret = "AGL_STORE_TOKEN=... " if token else ""
    run = f" --run-id {run_id}" if run_id else ""
    return f"{secret}agl runner +recipe=NAME --store-url {store_url}{run}"
