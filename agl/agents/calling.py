"""Calling user code for one attempt: what it is given by name, on the event loop or in a thread."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping

from agl.agents.base import Assignment
from agl.agents.binding import BoundFunction
from agl.agents.threads import in_thread

GIVEN = ("task", "resources", "rollout", "attempt")
"""What every agent and grader may take by name."""


def given_by(assignment: Assignment) -> dict[str, object]:
    """Return the values of ``GIVEN``; the resources are a copy."""
    return {
        "task": assignment.rollout.task,
        "resources": dict(assignment.resources),
        "rollout": assignment.rollout,
        "attempt": assignment.attempt,
    }


async def call(bound: BoundFunction, given: Mapping[str, object], assignment: Assignment) -> object:
    """Call user code: async code on the event loop, sync code in a thread."""
    arguments = bound.arguments(given, assignment.resources)
    function = functools.partial(bound.function, **arguments)
    if bound.is_async:
        return await bound.function(**arguments)
    result = await in_thread(function, name=f"agl {bound.name} {assignment.attempt.attempt_id}")
    return await result if inspect.isawaitable(result) else result
