"""The parts of a run in this process: opened in the order of the pipeline, closed in reverse."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

from agl.agents.base import Agent
from agl.algorithms.serving import ServedPolicy
from agl.http.listening import is_loopback
from agl.inference.base import Engine
from agl.launch.store_access import StoreAccess
from agl.learners.base import Learner
from agl.proxy import LLMProxy
from agl.proxy.server import ProxyServer
from agl.runners.base import Runners
from agl.runners.grading import Grader
from agl.store.address import Addressable, StoreAddress
from agl.store.base import LightningStore
from agl.types import Resource

log = logging.getLogger(__name__)

_DRAIN_SECONDS = 30.0
"""How long new weights wait for calls under way. Those left then have the versions of both ends in their record."""


@runtime_checkable
class OutsideAgent(Protocol):
    """An agent that runs programs of its own, which may want to reach the store."""

    @property
    def needs_store_url(self) -> bool:
        """Whether its programs are to be told where the store is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a run is made of, built but not started.

    Args:
        store: open.
        engine: serves the policy; None leaves the proxy with its endpoints.
        learner: moves the weights; None where nothing does.
        proxy: the recorded door to the model; None where another process has it.
        runner: executes rollouts.
        agent: what is run.
        grader: turns what the agent returned into the reward.
        hooks: called around rollouts.
        store_access: how processes outside of this one reach the store.
        resources: what agents get beside the model, such as prompt templates.
    """

    store: LightningStore
    engine: Engine | None
    learner: Learner | None
    proxy: LLMProxy | None
    runner: Runners
    agent: Agent
    grader: Grader | None = None
    hooks: Sequence[Any] = ()
    store_access: StoreAccess = field(default_factory=StoreAccess)
    resources: Mapping[str, Resource] = field(default_factory=dict[str, Resource])


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Parts that run.

    Args:
        proxy: where agents call the model; None where another process has it.
        store: where other processes reach the store; None where none has to.
    """

    proxy: ProxyServer | None
    store: StoreAddress | None


@asynccontextmanager
async def started(
    parts: Parts,
    *,
    run_id: str | None,
    token_file: Path | None = None,
    note: Callable[[str], None] = log.info,
) -> AsyncGenerator[Started]:
    """Start engine, learner, proxy and runner on the open store; stop all of them on the way out, whatever happened.

    Args:
        parts: built.
        run_id: whose rollouts are executed; None is everybody's.
        token_file: see ``StoreAccess.serving``.
        note: takes a line that a person should read.
    """
    async with AsyncExitStack() as stack:
        if parts.engine is not None:
            await stack.enter_async_context(parts.engine)
        if parts.learner is not None:
            await stack.enter_async_context(parts.learner)
        address = None
        if needs_address(parts):
            access = parts.store_access.serving(parts.store, token_file=token_file)
            address = await stack.enter_async_context(access)
            for line in _address_lines(parts, address, token_file):
                note(line)
        server = None
        if parts.proxy is not None:
            server = await stack.enter_async_context(parts.proxy.serving(parts.store, parts.engine))
        await stack.enter_async_context(
            parts.runner.running(
                parts.store,
                parts.agent,
                run_id=run_id,
                grader=parts.grader,
                hooks=parts.hooks,
                store_url=address and address.url,
                store_token=address and address.token,
                note=note,
            )
        )
        yield Started(proxy=server, store=address)


def _address_lines(parts: Parts, address: StoreAddress, token_file: Path | None) -> Iterator[str]:
    """What a person who starts runners elsewhere has to know; nothing of a store that others serve."""
    if isinstance(parts.store, Addressable):
        return
    token = (
        f"its token is in {token_file}"
        if token_file and token_file.exists()
        else "its token is AGL_STORE_TOKEN"
    )
    yield f"the store is served at {address.url}; {token}"
    if not parts.store_access.is_local and parts.proxy is not None and is_loopback(parts.proxy.host):
        yield (
            f"only this machine's agents reach the proxy at proxy.host={parts.proxy.host}: for runners on others set"
            " proxy.host and proxy.token too"
        )


def needs_address(parts: Parts) -> bool:
    """Whether a process outside of this one is to reach the store."""
    outside = isinstance(parts.agent, OutsideAgent) and parts.agent.needs_store_url
    return outside or parts.runner.needs_store_url


@asynccontextmanager
async def running(
    parts: Parts,
    *,
    run_id: str,
    token_file: Path | None = None,
    note: Callable[[str], None] = log.info,
) -> AsyncGenerator[ServedPolicy]:
    """The same with the policy as agents reach it; engine and proxy are there."""
    assert parts.engine is not None
    async with started(parts, run_id=run_id, token_file=token_file, note=note) as served:
        assert served.proxy is not None
        router = served.proxy.router
        yield ServedPolicy(
            engine=parts.engine,
            store=parts.store,
            proxy_url=served.proxy.url,
            run_id=run_id,
            new_id=lambda: uuid4().hex[:8],
            api_key=served.proxy.api_key,
            paused=partial(router.engine_paused, drain_seconds=_DRAIN_SECONDS) if router else nullcontext,
            resources=parts.resources,
        )
