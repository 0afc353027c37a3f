"""A recipe's function that turns what an agent did into its reward, for agents that know nothing of rewards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from agl.agents.base import Assignment
from agl.agents.binding import BoundFunction
from agl.agents.calling import GIVEN, call, given_by
from agl.types import Span


class Grader:
    """A sync or async function as a grader. It runs inside the attempt: its failure is the attempt's failure.

    Args:
        function: takes by name any of ``result`` (what the agent returned), ``spans`` (the attempt's so far, in order),
            ``task``, ``rollout``, ``attempt``, ``resources`` and resource names; returns a reward as an agent does.
        settings: values for further parameters.
    """

    def __init__(self, function: Callable[..., object], settings: Mapping[str, Any] | None = None) -> None:
        self._function, self._settings = function, dict(settings or {})
        self._bound = BoundFunction(function, given=(*GIVEN, "result", "spans"), settings=settings)

    def __reduce__(self) -> tuple[Any, ...]:
        return Grader, (self._function, self._settings)

    @property
    def name(self) -> str:
        """What the grader is called in messages."""
        return self._bound.name

    async def grade(
        self, assignment: Assignment, result: object, spans: Callable[[], Awaitable[Sequence[Span]]]
    ) -> object:
        """Return the grader's verdict; ``spans`` is asked only when the function takes them."""
        given = {**given_by(assignment), "result": result}
        if self._bound.takes("spans"):
            given["spans"] = list(await spans())
        return await call(self._bound, given, assignment)
