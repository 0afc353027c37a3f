"""Plain functions as agents: parameters are given by name, the return value is the reward.

``task``, ``resources``, ``rollout`` and ``attempt`` are the attempt's; a parameter bound by ``settings`` gets its
setting; any other name is a resource, or keeps its default. ``llm`` and ``prompt_template`` also find the only resource
of that kind.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, ParamSpec, TypeGuard, TypeVar, cast, overload

from agl.agents.base import Agent, Assignment, Bound, opened
from agl.agents.binding import BoundFunction, check_function
from agl.agents.calling import GIVEN, call, given_by
from agl.agents.isolation import IsolatedAgent
from agl.agents.lit_agent import InstanceAgent, LitAgent, built
from agl.agents.load import absolute_target, load_object
from agl.errors import ConfigError
from agl.types import Resource

P = ParamSpec("P")
R = TypeVar("R")


@overload
def rollout(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def rollout() -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def rollout(function: Callable[..., Any] | None = None, /) -> Callable[..., Any]:
    """Say that ``agl`` may run this sync or async function as an agent. The function itself stays as it is.

    Raises:
        ConfigError: a generator, a class, or a parameter that cannot be given by name.
    """
    if function is None:
        return rollout
    check_function(function)
    return function


class CallableAgent:
    """A function as an agent. A sync function runs in a thread of its own.

    Args:
        function: sync or async.
        settings: values for its parameters, checked against their names and annotations.
        name: for traces and messages; by default the function's own.
    """

    def __init__(
        self,
        function: Callable[..., object],
        settings: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
    ) -> None:
        self._function, self._settings = function, dict(settings or {})
        self._bound = BoundFunction(function, given=GIVEN, settings=settings)
        self._name = name or self._bound.name

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(CallableAgent, name=self._name), (self._function, self._settings)

    @property
    def name(self) -> str:
        """What the agent is called in traces and messages."""
        return self._name

    async def run(self, assignment: Assignment) -> object:
        """Call the function for this attempt and return what it returns."""
        return await call(self._bound, given_by(assignment), assignment)

    def check_resources(self, resources: Mapping[str, Resource]) -> None:
        """Check that the function finds all it takes."""
        self._bound.arguments(dict.fromkeys(GIVEN), resources)


class FunctionAgent:
    """A function, or a class or object of ``LitAgent``, named by text as an agent.

    Args:
        target: ``package.module:name`` or ``path/file.py:name``.
        settings: values for the function's parameters, or for the class's constructor.
        isolation: ``process`` runs attempts in processes of their own: for code that computes for long, which as
            ``none`` would hold up others and could not be stopped by a time limit.
    """

    def __init__(
        self,
        target: str,
        settings: dict[str, Any] | None = None,
        isolation: Literal["none", "process"] = "none",
    ) -> None:
        self._target, self._settings, self._isolation = target, dict(settings or {}), isolation
        if isolation == "process":
            self._agent: Agent = IsolatedAgent(FunctionAgent(target, settings))
        else:
            self._agent = _agent_of(target, load_object(target), self._settings)

    def __reduce__(self) -> tuple[Any, ...]:
        return FunctionAgent, (absolute_target(self._target), self._settings, self._isolation)

    @property
    def name(self) -> str:
        """What the agent is called in traces and messages."""
        return self._agent.name

    async def run(self, assignment: Assignment) -> object:
        """Call the user's code for this attempt and return what it returns."""
        return await self._agent.run(assignment)

    def check_resources(self, resources: Mapping[str, Resource]) -> None:
        """Check that the target finds all it takes; that of a process of its own is checked there."""
        if isinstance(self._agent, Bound):
            self._agent.check_resources(resources)

    def running(self) -> AbstractAsyncContextManager[object]:
        """Set up what the target needs set up."""
        return opened(self._agent)


def _agent_of(target: str, found: object, settings: Mapping[str, Any]) -> CallableAgent | InstanceAgent:
    if inspect.isclass(found) and issubclass(found, LitAgent):
        return InstanceAgent(built(cast("type[LitAgent[Any]]", found), settings))
    if isinstance(found, LitAgent):
        if settings:
            raise ConfigError(f"agent.settings: {target} is an object that is made already; name its class")
        return InstanceAgent(cast("LitAgent[Any]", found))
    if not callable(found) or inspect.isclass(found):
        raise ConfigError(
            f"agent.target {target!r} is a {_kind(found)}; it must be a function, or a class or object of LitAgent"
        )
    return CallableAgent(found, settings)


def as_agent(value: object) -> Agent:
    """Return an agent as it is, functions and ``LitAgent`` classes and objects as agents, and what text names as such.

    Raises:
        ConfigError: none of these.
    """
    if isinstance(value, str):
        found = load_object(value)
        return found if _is_agent(found) else FunctionAgent(value)
    if _is_agent(value):
        return value
    if inspect.isclass(value) and issubclass(value, LitAgent):
        return InstanceAgent(built(cast("type[LitAgent[Any]]", value), {}))
    if isinstance(value, LitAgent):
        return InstanceAgent(cast("LitAgent[Any]", value))
    if callable(value) and not inspect.isclass(value):
        return CallableAgent(value)
    raise ConfigError(
        f"a {_kind(value)} is not an agent: give a function, a LitAgent, an object with `name` and `run`, "
        "or 'module:name' of one"
    )


def _is_agent(value: object) -> TypeGuard[Agent]:
    return isinstance(value, Agent) and not inspect.isclass(value)


def _kind(value: object) -> str:
    return f"class {value.__name__}" if isinstance(value, type) else type(value).__name__
