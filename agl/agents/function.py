"""Plain functions as agents: parameters are given by name, the return value is the reward.

``task``, ``resources``, ``rollout`` and ``attempt`` are the attempt's; a parameter bound by ``settings`` gets its
setting; any other name is a resource, or keeps its default. ``llm`` and ``prompt_template`` also find the only resource
of that kind.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, overload

from agl.agents.base import Agent, Assignment
from agl.agents.binding import BoundFunction, check_function
from agl.agents.load import load_object
from agl.agents.threads import in_thread
from agl.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")

GIVEN = ("task", "resources", "rollout", "attempt")


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
        self._bound = BoundFunction(function, given=GIVEN, settings=settings)
        self._name = name or self._bound.name

    @property
    def name(self) -> str:
        """What the agent is called in traces and messages."""
        return self._name

    async def run(self, assignment: Assignment) -> object:
        """Call the function for this attempt and return what it returns."""
        given = {
            "task": assignment.rollout.task,
            "resources": dict(assignment.resources),
            "rollout": assignment.rollout,
            "attempt": assignment.attempt,
        }
        return await call(self._bound, given, assignment)


class FunctionAgent(CallableAgent):
    """A function named by text as an agent.

    Args:
        target: ``package.module:name`` or ``path/file.py:name``.
        settings: values for the function's parameters.
    """

    def __init__(self, target: str, settings: dict[str, Any] | None = None) -> None:
        function = load_object(target)
        if not callable(function) or inspect.isclass(function):
            raise ConfigError(f"agent.target {target!r} is a {_kind(function)}; it must be a function")
        super().__init__(function, settings)


def as_agent(value: object) -> Agent:
    """Return an agent as it is, a function as an agent, and what text names as one of these.

    Raises:
        ConfigError: neither.
    """
    if isinstance(value, str):
        return as_agent(load_object(value))
    if isinstance(value, Agent) and not inspect.isclass(value):
        return value
    if callable(value) and not inspect.isclass(value):
        return CallableAgent(value)
    raise ConfigError(
        f"a {_kind(value)} is not an agent: give a function, an object with `name` and `run`, or 'module:name'"
    )


async def call(bound: BoundFunction, given: Mapping[str, object], assignment: Assignment) -> object:
    """Call user code: async code on the event loop, sync code in a thread."""
    arguments = bound.arguments(given, assignment.resources)
    function = functools.partial(bound.function, **arguments)
    if bound.is_async:
        return await bound.function(**arguments)
    result = await in_thread(function, name=f"agl {bound.name} {assignment.attempt.attempt_id}")
    return await result if inspect.isawaitable(result) else result


def _kind(value: object) -> str:
    return f"class {value.__name__}" if isinstance(value, type) else type(value).__name__
