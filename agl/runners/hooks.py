"""Hook: the user's code around every attempt, beside the agent: prepare, look, tidy up, judge."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from agl.agents.base import Agent, Assignment
from agl.agents.binding import BoundFunction
from agl.agents.calling import call
from agl.agents.load import load_object
from agl.errors import ConfigError
from agl.runners.outcome import Outcome
from agl.types import AttemptedRollout, Span

_ALWAYS = ("agent", "rollout", "attempt")
_GIVEN: Mapping[str, tuple[str, ...]] = {
    "on_rollout_start": _ALWAYS,
    "on_trace_start": _ALWAYS,
    "on_trace_end": (*_ALWAYS, "outcome"),
    "on_rollout_end": (*_ALWAYS, "outcome", "spans"),
}


class Hook:
    """What is called around each attempt: override any of these, sync or async.

    Each takes by name any of ``agent``, ``rollout`` and ``attempt``; the ends take ``outcome`` too, the last one also
    ``spans``, all that the attempt recorded. One object serves all attempts of a runner, many at once.

    A start that raises fails the attempt and the agent is not run. An end that raises is recorded on the attempt and
    logged; how the attempt ended stays.
    """

    def on_rollout_start(self, *args: Any, **kwargs: Any) -> Any:
        """Called before anything else: before the attempt's resources are looked up."""

    def on_trace_start(self, *args: Any, **kwargs: Any) -> Any:
        """Called right before the agent."""

    def on_trace_end(self, *args: Any, **kwargs: Any) -> Any:
        """Called when the agent and its grader have ended; a reward emitted here is the last word."""

    def on_rollout_end(self, *args: Any, **kwargs: Any) -> Any:
        """Called when the trace is complete, right before the outcome is reported; nothing can be emitted here."""


class HookCalls:
    """The hooks of a runner, checked and ready to be called.

    Raises:
        ConfigError: a method takes what it cannot be given, or something is no hook.
    """

    def __init__(self, hooks: Iterable[Hook | type[Hook] | str] = ()) -> None:
        made = [as_hook(hook) for hook in hooks]
        self._calls = {
            moment: [_bound(hook, moment) for hook in made if _overrides(hook, moment)] for moment in _GIVEN
        }

    def has(self, moment: str) -> bool:
        """Whether any hook wants to be called then."""
        return bool(self._calls[moment])

    async def start(self, moment: str, agent: Agent, claim: AttemptedRollout) -> None:
        """Call ``on_rollout_start`` or ``on_trace_start`` of each hook, in order.

        Raises:
            BaseException: what a hook raises; the hooks after it are not called.
        """
        for bound in self._calls[moment]:
            await _called(bound, {"agent": agent}, claim)

    async def end(
        self,
        moment: str,
        agent: Agent,
        claim: AttemptedRollout,
        outcome: Outcome,
        spans: Callable[[], Awaitable[Sequence[Span]]],
    ) -> list[tuple[str, BaseException]]:
        """Call ``on_trace_end`` or ``on_rollout_end`` of each hook, the last one first; return what failed, by name."""
        failed: list[tuple[str, BaseException]] = []
        for bound in reversed(self._calls[moment]):
            given: dict[str, object] = {"agent": agent, "outcome": outcome}
            try:
                if bound.takes("spans"):
                    given["spans"] = list(await spans())
                await _called(bound, given, claim)
            except Exception as error:  # noqa: BLE001 - the boundary of an attempt: recorded on it
                failed.append((bound.name, error))
        return failed


def as_hook(value: Hook | type[Hook] | str) -> Hook:
    """Return a hook as it is, a class of hooks as one, and what text names as one of these.

    Raises:
        ConfigError: neither.
    """
    found = load_object(value) if isinstance(value, str) else value
    if inspect.isclass(found) and issubclass(found, Hook):
        found = found()
    if not isinstance(found, Hook):
        raise ConfigError(
            f"a {type(found).__name__} is not a hook: give an object of a subclass of agl.Hook, or 'module:name'"
        )
    return found


def _overrides(hook: Hook, moment: str) -> bool:
    return getattr(type(hook), moment) is not getattr(Hook, moment) or moment in vars(hook)


def _bound(hook: Hook, moment: str) -> BoundFunction:
    given = _GIVEN[moment]
    bound = BoundFunction(getattr(hook, moment), given=given)
    unknown = [name for name in bound.required if name not in given]
    if unknown:
        raise ConfigError(f"{bound.name} takes {', '.join(unknown)}; a hook is given {', '.join(given)}")
    return bound


async def _called(bound: BoundFunction, given: Mapping[str, object], claim: AttemptedRollout) -> None:
    everything = {**given, "rollout": claim.rollout, "attempt": claim.attempt}
    await call(bound, everything, Assignment(rollout=claim.rollout, attempt=claim.attempt))
