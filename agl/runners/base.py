"""Runners: who executes a run's rollouts - in this process, in child processes, or in processes that join.

The three kinds differ in where agents run, never in what happens to a rollout.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from agl.agents.base import Agent
from agl.errors import ConfigError
from agl.runners.grading import Grader
from agl.runners.hooks import Hook
from agl.store.base import LightningStore

log = logging.getLogger(__name__)


@runtime_checkable
class Runners(Protocol):
    """Settings of what executes rollouts; ``running`` starts it."""

    @property
    def needs_store_url(self) -> bool:
        """Whether ``running`` must be given the URL under which other processes reach the store."""
        ...

    def running(
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
    ) -> AbstractAsyncContextManager[object]:
        """Execute rollouts while the block lasts; on the way out finish what is in hand, or hand it back.

        When the runners themselves fail, the block is cancelled and the cause raised from the context manager. When
        the block fails, attempts in hand are stopped at once and their rollouts handed back.

        Args:
            store: open; where rollouts come from and reports go.
            agent: an ``Agent`` or a function.
            run_id: only rollouts of this run.
            grader: turns what the agent returned into the reward.
            hooks: called around rollouts and their traces.
            store_url: where other processes reach the store; None when it is not served.
            store_token: its token; None when it asks for none.
            note: takes a line that a person should read while it happens.
        """
        ...


def check_runner_settings(max_concurrency: int, heartbeat_seconds: float, drain_seconds: float) -> None:
    """Refuse what no runner can work with.

    Raises:
        ConfigError: naming the setting.
    """
    if max_concurrency < 1:
        raise ConfigError(f"runner.max_concurrency={max_concurrency} must be at least 1")
    if not heartbeat_seconds > 0:
        raise ConfigError(f"runner.heartbeat_seconds={heartbeat_seconds} must be above 0")
    if not drain_seconds >= 0:
        raise ConfigError(f"runner.drain_seconds={drain_seconds} must not be negative")
