"""StandaloneRunner: runners that join a store which is served elsewhere. What ``agl runner --store-url`` builds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agl.agents.base import Agent
from agl.agents.function import as_agent
from agl.errors import ConfigError
from agl.launch.draining import drained_by_sigterm
from agl.launch.joining import run_succeeded
from agl.launch.local import Parts, started
from agl.runners.base import Runners
from agl.runners.grading import Grader
from agl.runners.hooks import Hook, as_hook
from agl.runners.remote import RemoteRunners
from agl.store.base import LightningStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A runner that has joined.

    Args:
        records: the store's location.
        identity: of the store.
        agent: the agent's name.
        run_id: whose rollouts are executed; None is everybody's.
    """

    records: str
    identity: str
    agent: str
    run_id: str | None


class StandaloneRunner:
    """Executes a store's rollouts until it is told to stop; it may come and go at any time.

    Args:
        store: where rollouts come from and reports go.
        agent: what is run.
        runner: how: in this process, or in children of it.
        grader: turns what the agent returned into the reward.
        hooks: called around rollouts.
        run_id: only rollouts of this run; None takes those of any.
    """

    def __init__(
        self,
        *,
        store: LightningStore,
        agent: Agent | Callable[..., Any],
        runner: Runners,
        grader: Grader | Callable[..., object] | None = None,
        hooks: Sequence[Hook | type[Hook]] | Sequence[str] = (),
        run_id: str | None = None,
    ) -> None:
        if isinstance(runner, RemoteRunners):
            raise ConfigError("runner=remote runs nothing: give --processes N, or runner=inline")
        self.store, self.agent, self.runner, self.run_id = store, as_agent(agent), runner, run_id
        self.grader = Grader(grader) if callable(grader) and not isinstance(grader, Grader) else grader
        self.hooks = [as_hook(hook) for hook in hooks]

    async def serve(
        self, *, on_joined: Callable[[Joined], None], note: Callable[[str], None] = log.info
    ) -> None:
        """Execute rollouts until SIGTERM, then finish what is in hand; cancelled, hand everything back at once.

        A runner of one run leaves when that has succeeded, too.

        Args:
            on_joined: told once the store is open and the runners start.
            note: takes a line that a person should read while it happens.

        Raises:
            StoreError: the store cannot be reached, or another one answers there.
            RunStoppedError: runner processes die again and again.
        """
        stop = asyncio.Event()
        async with self.store as store:
            parts = Parts(
                store=store,
                engine=None,
                learner=None,
                proxy=None,
                runner=self.runner,
                agent=self.agent,
                grader=self.grader,
                hooks=self.hooks,
            )
            with drained_by_sigterm(stop):
                async with started(parts, run_id=self.run_id, note=note):
                    on_joined(
                        Joined(
                            records=store.location,
                            identity=(await store.health())["identity"],
                            agent=self.agent.name,
                            run_id=self.run_id,
                        )
                    )
                    await self._until(stop, store, note)

    async def _until(self, stop: asyncio.Event, store: LightningStore, note: Callable[[str], None]) -> None:
        """Wait for the stop, or for the end of the one run that this runner is for."""
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait())]
        if self.run_id is not None:
            waits.append(asyncio.create_task(_succeeded(store, self.run_id, note)))
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                wait.result()
        finally:
            for wait in waits:
                wait.cancel()


async def _succeeded(store: LightningStore, run_id: str, note: Callable[[str], None]) -> None:
    await run_succeeded(store, run_id=run_id)
    note(f"the run {run_id} has succeeded: its runner leaves")
