"""Rerun: recorded rollouts executed again in this process, with the agent and settings of the run that had them.

They are a run of their own in the store: no other runner takes them, and no other waiting rollout is taken with them.
Their agents get the resources of the record, with this process's proxy in place of one that may be gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from agl.agents.base import Agent
from agl.agents.function import as_agent
from agl.errors import StoreError
from agl.evaluation.rollouts import ABANDONED, STRAGGLER, abandon_rollouts, run_rollouts
from agl.evaluation.waiting import OnWait, no_words
from agl.inference.base import Engine
from agl.inference.refusing import RefusingEngine
from agl.launch.local import Parts, started
from agl.launch.run_record import recorded_status
from agl.launch.store_access import StoreAccess
from agl.launch.tasks import MODEL
from agl.proxy import LLMProxy, ProxyServer
from agl.runners.base import Runners
from agl.runners.grading import Grader
from agl.runners.hooks import Hook, as_hook
from agl.runners.inline import InlineRunners
from agl.runners.remote import RemoteRunners
from agl.store.base import LightningStore
from agl.types import Json, ModelEndpoint, ProxyLLM, Resource, Rollout, RolloutConfig, RolloutRequest

log = logging.getLogger(__name__)

RECORD_ONLY = "this replay has all its answers in the record: no model is asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A rollout to execute again.

    Args:
        rollout: as it is recorded.
        rollout_id: of the new one; None leaves it to the store.
        metadata: of the new one, beside the old one's.
        resources: what the agent gets instead of the recorded resources; None are those.
        config: time limits and attempts; None are the recorded ones.
        group_id: of the rollouts that it is compared with.
    """

    rollout: Rollout
    rollout_id: str | None = None
    metadata: Mapping[str, Json] = field(default_factory=dict[str, Json])
    resources: Mapping[str, Resource] | None = None
    config: RolloutConfig | None = None
    group_id: str | None = None


class Rerun:
    """Executes recorded rollouts again.

    Args:
        agent: what is run.
        runner: executes rollouts; one that runs elsewhere stands for one in this process.
        proxy: the recorded door to the model, at a port of its own.
        inference: answers as the model; None leaves the proxy with its endpoints.
        grader: turns what the agent returned into the reward.
        hooks: called around rollouts.
        resources: what agents get beside the model where not the record, but the settings say so.
        store_server: how processes outside of this one reach the store, where one has to.
        name: of the run.
    """

    def __init__(
        self,
        *,
        agent: Agent | Callable[..., Any],
        runner: Runners | None = None,
        proxy: LLMProxy | None = None,
        inference: Engine | None = None,
        grader: Grader | Callable[..., object] | None = None,
        hooks: Sequence[Hook | type[Hook]] | Sequence[str] = (),
        resources: Mapping[str, Resource] | None = None,
        store_server: StoreAccess | None = None,
        name: str = "rerun",
    ) -> None:
        self.agent, self.inference, self.name = as_agent(agent), inference, name
        self.runner = InlineRunners() if runner is None or isinstance(runner, RemoteRunners) else runner
        self.proxy = copy(proxy or LLMProxy())
        self.proxy.port = 0
        self.grader = Grader(grader) if callable(grader) and not isinstance(grader, Grader) else grader
        self.hooks = [as_hook(hook) for hook in hooks]
        self.resources, self.store_server = dict(resources or {}), store_server or StoreAccess()

    async def run(
        self,
        store: LightningStore,
        wanted: Sequence[Wanted],
        *,
        purpose: str,
        record_only: bool = False,
        settings: Mapping[str, Any] | None = None,
        on_wait: OnWait = no_words,
        note: Callable[[str], None] = log.info,
    ) -> list[Rollout]:
        """Execute them, side by side; return the new rollouts in their order.

        Args:
            store: open, to write to.
            wanted: at least one.
            purpose: ``retry`` or ``replay``: the command of the new run, and how its id begins.
            record_only: start no model, and refuse every call that the record does not answer.
            settings: resolved, secrets masked, for the run's record.
            on_wait: hears how many have ended, and who keeps the others waiting.
            note: takes a line that a person should read while it happens.
        """
        run_id = f"{purpose}-{uuid4().hex[:12]}"
        recorded = [await _resources_of(store, one) for one in wanted]
        engine = _refusing(recorded) if record_only else self.inference
        proxy = _behind(self.proxy, "engine") if record_only else self.proxy
        async with AsyncExitStack() as stack:
            await store.add_run(name=self.name, run_id=run_id, command=purpose, settings=settings)
            await stack.enter_async_context(recorded_status(store, run_id))
            try:
                async with started(self._parts(store, engine, proxy), run_id=run_id, note=note) as served:
                    assert served.proxy is not None
                    requests = [
                        _request(
                            one,
                            await _published(store, resources, served.proxy, run_id),
                            index=index,
                            run_id=run_id,
                        )
                        for index, (one, resources) in enumerate(zip(wanted, recorded, strict=True))
                    ]
                    return await run_rollouts(store, requests, on_wait=on_wait)
            finally:
                with suppress(StoreError):  # it is what went wrong
                    await abandon_rollouts(
                        store, run_id=run_id
                    )  # where it was stopped: nobody else takes them

    def _parts(self, store: LightningStore, engine: Engine | None, proxy: LLMProxy) -> Parts:
        return Parts(
            store=store,
            engine=engine,
            learner=None,
            proxy=proxy,
            runner=self.runner,
            agent=self.agent,
            grader=self.grader,
            hooks=self.hooks,
            store_access=self.store_server,
            resources=self.resources,
        )


def _request(one: Wanted, resources_id: str, *, index: int, run_id: str) -> RolloutRequest:
    rollout = one.rollout
    kept = {name: value for name, value in rollout.metadata.items() if name not in (ABANDONED, STRAGGLER)}
    return RolloutRequest(
        task=rollout.task,
        rollout_id=one.rollout_id or f"{run_id}-{index}",
        run_id=run_id,
        mode=rollout.mode,
        group_id=one.group_id,
        resources_id=resources_id,
        config=one.config or rollout.config,
        metadata={**kept, **one.metadata},
    )


async def _published(
    store: LightningStore, resources: Mapping[str, Resource], served: ProxyServer, run_id: str
) -> str:
    """Put what an agent gets into the store, also where that is nothing: without any it would get the latest.

    Endpoints are left out, for the calls of other runs would be sent to them.
    """
    here = {
        name: _present(value, served)
        for name, value in resources.items()
        if not isinstance(value, ModelEndpoint)
    }
    return (await store.add_resources(here, run_id=run_id)).resources_id


async def _resources_of(store: LightningStore, one: Wanted) -> Mapping[str, Resource]:
    if one.resources is not None:
        return one.resources
    if one.rollout.resources_id is None:
        return {}
    return (await store.get_resources_by_id(one.rollout.resources_id)).resources


def _present(resource: Resource, served: ProxyServer) -> Resource:
    """A model behind a proxy as this process's proxy has it."""
    if not isinstance(resource, ProxyLLM):
        return resource
    return resource.model_copy(update={"base_url": served.url, "api_key": served.api_key})


def _refusing(recorded: Sequence[Mapping[str, Resource]]) -> RefusingEngine:
    """An engine by the name that the record's agents call."""
    models = [resources.get(MODEL) for resources in recorded]
    models += [value for resources in recorded for value in resources.values()]
    first = next((value for value in models if isinstance(value, ProxyLLM)), None)
    if first is None:
        return RefusingEngine(model="none", why=RECORD_ONLY)
    return RefusingEngine(model=first.model, policy_version=first.policy_version, why=RECORD_ONLY)


def _behind(proxy: LLMProxy, upstream: str) -> LLMProxy:
    """The proxy with the same routes, all of which end at its own engine."""
    changed = copy(proxy)
    changed.endpoints = {
        name: endpoint.model_copy(
            update={
                "upstream": upstream,
                "urls": (),
                "api_key_env": None,
                "upstream_model": None,
                "policy_version": None,
            }
        )
        for name, endpoint in proxy.endpoints.items()
    }
    return changed
