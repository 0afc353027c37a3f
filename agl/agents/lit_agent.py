"""LitAgent: a class as an agent, for what needs state, set-up or different ways in training and validation."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar, cast

from agl.agents.base import Assignment
from agl.agents.binding import BoundFunction
from agl.agents.calling import GIVEN, call, given_by
from agl.agents.threads import in_thread
from agl.errors import ConfigError
from agl.types import Mode, Resource

Task = TypeVar("Task")
_METHODS: Mapping[Mode, str] = {
    "train": "training_rollout",
    "val": "validation_rollout",
    "test": "validation_rollout",
}


class LitAgent(Generic[Task]):
    """Override ``rollout``, or ``training_rollout`` and ``validation_rollout``; each may be sync or async.

    They take parameters by name as functions do (``task``, ``llm``, ``rollout``, any resource, ...) and return the
    reward. One object serves all attempts of a runner, many at once (sync methods in threads): what is kept on
    ``self`` is shared by them. Keep there what they may share, such as clients and tools, and nothing of one attempt.
    """

    def setup(self) -> Any:
        """Called once before a runner's first attempt; sync or async."""

    def teardown(self) -> Any:
        """Called once after a runner's last attempt, also when the runner fails; sync or async."""

    def rollout(self, *args: Any, **kwargs: Any) -> Any:
        """Work on the task, in any mode that has no method of its own."""
        raise NotImplementedError(f"{type(self).__name__} has no rollout method")

    def training_rollout(self, *args: Any, **kwargs: Any) -> Any:
        """Work on the task in mode ``train``; by default ``rollout``."""
        raise NotImplementedError(f"{type(self).__name__} has no training_rollout method")

    def validation_rollout(self, *args: Any, **kwargs: Any) -> Any:
        """Work on the task in modes ``val`` and ``test``; by default ``rollout``."""
        raise NotImplementedError(f"{type(self).__name__} has no validation_rollout method")


class InstanceAgent:
    """A ``LitAgent`` object as what a runner calls.

    Args:
        instance: of a subclass of ``LitAgent``.
        name: for traces and messages; by default the class's own.

    Raises:
        ConfigError: it has no rollout method for a mode, or one that cannot be called by name.
    """

    def __init__(self, instance: LitAgent[Any], *, name: str | None = None) -> None:
        self._instance = instance
        self._name = name or type(instance).__name__
        self._bound = {mode: _method(instance, mode) for mode in _METHODS}

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(InstanceAgent, name=self._name), (self._instance,)

    @property
    def name(self) -> str:
        """What the agent is called in traces and messages."""
        return self._name

    async def run(self, assignment: Assignment) -> object:
        """Call the method for the rollout's mode and return what it returns."""
        return await call(self._bound[assignment.rollout.mode], given_by(assignment), assignment)

    def check_resources(self, resources: Mapping[str, Resource]) -> None:
        """Check that the method of every mode finds all it takes."""
        for bound in self._bound.values():
            bound.arguments(dict.fromkeys(GIVEN), resources)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Call ``setup`` before and ``teardown`` after the block."""
        await _called(self._instance.setup, f"agl setup {self._name}")
        try:
            yield
        finally:
            await _called(self._instance.teardown, f"agl teardown {self._name}")


def built(kind: type[LitAgent[Any]], settings: Mapping[str, Any]) -> LitAgent[Any]:
    """Return an object of the class, made with ``settings`` as its constructor's arguments.

    Raises:
        ConfigError: a setting is unknown, missing or of the wrong type.
    """
    init = cast("Callable[..., object]", kind.__init__)
    constructor = _without_settings if init is object.__init__ else functools.partial(init, None)
    bound = BoundFunction(constructor, given=(), settings=settings, name=kind.__name__)
    if bound.required:
        raise ConfigError(
            f"{kind.__name__} needs {', '.join(f'settings.{name}' for name in bound.required)}: give a value"
        )
    return kind(**bound.arguments({}, {}))


def _without_settings() -> None:
    """The parameters of a class without a constructor."""


def _method(instance: LitAgent[Any], mode: Mode) -> BoundFunction:
    kind = type(instance)
    for name in (_METHODS[mode], "rollout"):
        if getattr(kind, name) is not getattr(LitAgent, name) or name in vars(instance):
            return BoundFunction(getattr(instance, name), given=GIVEN)
    named = [name for name in dir(kind) if name.endswith("rollout_async")]
    hint = f"; name {named[0]} {named[0].removesuffix('_async')}: it may be async" if named else ""
    raise ConfigError(
        f"{kind.__name__} has no method for mode {mode}: write rollout or {_METHODS[mode]}{hint}"
    )


async def _called(method: Callable[[], Any], name: str) -> None:
    if inspect.iscoroutinefunction(method):
        await method()
        return
    result = await in_thread(method, name=name)
    if inspect.isawaitable(result):
        await asyncio.ensure_future(result)
