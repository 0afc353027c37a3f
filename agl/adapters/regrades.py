"""Spans of one attempt -> the reward that a grader gave to its record later (``agl regrade --write``).

Nothing takes it in place of the rollout's own reward unless it is asked to, by the grader's name.
"""

from __future__ import annotations

from collections.abc import Sequence

from agl.tracing.reward import Reward, reward_from_attributes
from agl.types import Span
from agl.types import attributes as key


def regraded_reward(spans: Sequence[Span], *, grader: str | None = None) -> Reward | None:
    """Return what the attempt's newest regrade says, by that grader or by any; None where there is none.

    Args:
        spans: of one attempt, as the store lists them.
        grader: as ``agl regrade --grader`` named it.
    """
    found = [
        span
        for span in spans
        if span.name == key.REGRADE_SPAN
        and (grader is None or span.attributes.get(key.REGRADE_GRADER) == grader)
    ]
    return reward_from_attributes(found[-1].attributes) if found else None
