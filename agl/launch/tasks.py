"""TaskRun: an agent on some tasks, through an embedded store, for a person who wants to see what it does.

What ``agl run`` builds: the same runner, proxy and engine as in training, and nothing that learns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from agl.adapters.triplets import is_call
from agl.agents.base import Agent
from agl.agents.function import as_agent
from agl.algorithms.serving import ServedPolicy
from agl.errors import ConfigError
from agl.evaluation.rollouts import run_rollouts, spans_of_rollout
from agl.inference.base import Engine
from agl.launch.local import Parts, started
from agl.launch.store_access import StoreAccess
from agl.proxy import LLMProxy, ProxyServer
from agl.runners.base import Runners
from agl.runners.grading import Grader
from agl.runners.hooks import Hook, as_hook
from agl.runners.inline import InlineRunners
from agl.runners.remote import RemoteRunners
from agl.store.base import LightningStore
from agl.types import Json, Mode, ProxyLLM, Resource, Rollout, RolloutConfig, RolloutRequest, Span
from agl.types import attributes as key

log = logging.getLogger(__name__)

MODEL = "llm"
"""The name of the resource under which agents get the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What became of one task.

    Args:
        rollout: as it ended.
        calls: recorded calls of models.
        tokens: of these calls, prompts and answers.
    """

    rollout: Rollout
    calls: int
    tokens: int

    @property
    def seconds(self) -> float:
        """From the first claim to the end."""
        begin, end = self.rollout.started_at, self.rollout.finished_at
        return end - begin if begin is not None and end is not None else 0.0


class TaskRun:
    """Runs an agent on tasks and changes nothing.

    Args:
        agent: what is run.
        store: queue and record.
        runner: executes rollouts.
        proxy: the recorded door to the model.
        inference: answers as the resource ``llm``; None leaves the proxy with its endpoints, of which the first is it.
        grader: turns what the agent returned into the reward.
        hooks: called around rollouts.
        resources: what agents get beside the model.
        store_server: how processes outside of this one reach the store, where one has to.
        name: of the run.
        seed: of the rollouts' sampling.
    """

    def __init__(
        self,
        *,
        agent: Agent | Callable[..., Any],
        store: LightningStore,
        runner: Runners | None = None,
        proxy: LLMProxy | None = None,
        inference: Engine | None = None,
        grader: Grader | Callable[..., object] | None = None,
        hooks: Sequence[Hook | type[Hook]] | Sequence[str] = (),
        resources: Mapping[str, Resource] | None = None,
        store_server: StoreAccess | None = None,
        name: str = "run",
        seed: int = 0,
    ) -> None:
        if isinstance(runner, RemoteRunners):
            raise ConfigError("runner=remote runs nothing: give --processes N, or runner=inline")
        self.agent, self.store, self.runner = as_agent(agent), store, runner or InlineRunners()
        self.proxy, self.inference = proxy or LLMProxy(), inference
        self.grader = Grader(grader) if callable(grader) and not isinstance(grader, Grader) else grader
        self.hooks = [as_hook(hook) for hook in hooks]
        self.resources, self.store_server = dict(resources or {}), store_server or StoreAccess()
        self.name, self.seed = name, seed

    async def run(
        self,
        tasks: Sequence[Json],
        *,
        mode: Mode = "val",
        config: RolloutConfig | None = None,
        settings: Mapping[str, Any] | None = None,
        on_progress: Callable[[int, int], None] = lambda _done, _total: None,
        note: Callable[[str], None] = log.info,
    ) -> list[TaskResult]:
        """Run the agent once on each task; return the results in the order of the tasks.

        Args:
            tasks: inputs.
            mode: what the rollouts count as.
            config: time limits and retries.
            settings: resolved, secrets masked, for the run's record.
            on_progress: hears how many have ended, of how many.
            note: takes a line that a person should read while it happens.
        """
        run_id = f"{self.name}-{uuid4().hex[:8]}"
        async with self.store as store:
            await store.add_run(name=self.name, run_id=run_id, command="run", settings=settings)
            async with started(self._parts(store), run_id=run_id, note=note) as served:
                assert served.proxy is not None
                resources_id = await publish_resources(
                    store,
                    self.resources,
                    engine=self.inference,
                    proxy=self.proxy,
                    served=served.proxy,
                    run_id=run_id,
                    purpose="run",
                    sampling={},
                )
                requests = [
                    RolloutRequest(
                        task=task,
                        rollout_id=f"{run_id}-{index}",
                        run_id=run_id,
                        mode=mode,
                        resources_id=resources_id,
                        config=config or RolloutConfig(),
                        metadata={"seed": self.seed + index},
                    )
                    for index, task in enumerate(tasks)
                ]
                rollouts = await run_rollouts(store, requests, on_progress=on_progress)
            await store.update_run(run_id, status="succeeded")
            return [
                result_from(rollout, await spans_of_rollout(store, rollout.rollout_id))
                for rollout in rollouts
            ]

    def _parts(self, store: LightningStore) -> Parts:
        return Parts(
            store=store,
            engine=self.inference,
            learner=None,
            proxy=self.proxy,
            runner=self.runner,
            agent=self.agent,
            grader=self.grader,
            hooks=self.hooks,
            store_access=self.store_server,
            resources=self.resources,
        )


async def publish_resources(
    store: LightningStore,
    resources: Mapping[str, Resource],
    *,
    engine: Engine | None,
    proxy: LLMProxy,
    served: ProxyServer,
    run_id: str,
    purpose: str,
    sampling: Mapping[str, Any],
) -> str | None:
    """Put what agents get into the store; return the id of it, None when they get nothing.

    Args:
        store: open.
        resources: beside the model.
        engine: the model; None is the first of the proxy's endpoints, if it has any.
        proxy: its settings.
        served: the same proxy, at work.
        run_id: whose resources these are.
        purpose: in their id, where there is an engine.
        sampling: request parameters that are forced on every call.
    """
    if engine is not None:
        policy = ServedPolicy(
            engine=engine,
            store=store,
            proxy_url=served.url,
            run_id=run_id,
            new_id=lambda: uuid4().hex[:8],
            resource_name=MODEL,
            api_key=served.api_key,
            resources=resources,
        )
        return await policy.resources_id(purpose, sampling)
    given = dict(resources)
    if proxy.endpoints:
        first = next(iter(proxy.endpoints))
        given[MODEL] = ProxyLLM(
            base_url=served.url, model=first, api_key=served.api_key, sampling=dict(sampling)
        )
    if not given:
        return None
    return (await store.add_resources(given, run_id=run_id)).resources_id


def result_from(rollout: Rollout, spans: Sequence[Span]) -> TaskResult:
    """Return a rollout with what its spans say of its calls."""
    calls = [span for span in spans if is_call(span)]
    tokens = sum(
        int(span.attributes.get(name, 0)) for span in calls for name in (key.INPUT_TOKENS, key.OUTPUT_TOKENS)
    )
    return TaskResult(rollout=rollout, calls=len(calls), tokens=tokens)
