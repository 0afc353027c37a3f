"""Agent: what a runner calls, once an attempt."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from agl.errors import AgentError
from agl.types import Attempt, Resource, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One attempt as the agent sees it.

    Args:
        rollout: the request; its ``task`` is the input.
        attempt: this execution of it.
        resources: what the agent is given by name; a ``ProxyLLM`` stands here as the attempt's own ``LLM``.
        environment: what a program outside of this process is told by its environment: the attempt's ids, and where
            the store is and the attempt's own token for it where the store can be reached. Holds a secret.
    """

    rollout: Rollout
    attempt: Attempt
    resources: Mapping[str, Resource] = field(default_factory=dict[str, Resource])
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@runtime_checkable
class Agent(Protocol):
    """Executes attempts, many at once."""

    @property
    def name(self) -> str:
        """What the agent is called in traces and messages."""
        ...

    async def run(self, assignment: Assignment) -> object:
        """Work on the task. Never blocks the event loop; stops when its asyncio task is cancelled.

        Returns:
            A reward (a number, or numbers by dimension), or None for the last emitted one or none at all.
        """
        ...


@runtime_checkable
class LongLived(Protocol):
    """An agent that needs something set up before its first attempt and taken down after its last."""

    def running(self) -> AbstractAsyncContextManager[object]:
        """Return what a runner enters once, around all its attempts."""
        ...


@runtime_checkable
class Bound(Protocol):
    """An agent that can tell, before it is run, whether it gets all that it takes by name."""

    def check_resources(self, resources: Mapping[str, Resource]) -> None:
        """Check that every parameter finds a value among these resources, its settings and defaults.

        Raises:
            MissingResourceError: one does not.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an agent may return that tells its reward from what it has to say.

    Args:
        value: what a grader gets as ``result``.
        reward: as an agent returns it; without a grader, the attempt's.
    """

    value: object
    reward: object = None


@asynccontextmanager
async def opened(agent: Agent) -> AsyncGenerator[Agent]:
    """Give the agent ready for work, set up if it is one that needs it; leaving the block takes it down."""
    if not isinstance(agent, LongLived):
        yield agent
        return
    async with agent.running():
        yield agent


class MissingResourceError(AgentError):
    """The agent asks for a resource that its rollout's resources do not have."""
