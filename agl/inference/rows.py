"""What goes through the batch: a row is one answer being sampled, a call is the rows of one request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agl.errors import InferenceError

FinishReason = Literal["stop", "length", "error"]
"""``error``: the model's logits were not numbers."""


@dataclass(slots=True, kw_only=True, eq=False)
class Row:
    """One answer being sampled.

    Args:
        prompt_ids: at least one.
        max_tokens: after which the row finishes with reason ``length``.
        temperature: 0 takes the most likely token.
        top_p: 1 is off.
        top_k: 0 is off.
        draw: gives the row's next uniform number of [0, 1).
        stopped: whether the ids sampled so far complete a stop string.
    """

    prompt_ids: Sequence[int]
    max_tokens: int
    temperature: float
    draw: Callable[[], float]
    top_p: float = 1.0
    top_k: int = 0
    stopped: Callable[[Sequence[int]], bool] | None = None
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    finish_reason: FinishReason | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """The rows of one request; all are sampled by the same weights."""

    rows: Sequence[Row]
    num_unfinished: int
    policy_version: int | None = None
    """None until the first row is sampled."""
    error: InferenceError | None = None
    streamed: bool = False
    """Whether its caller is told of every step, not only of the end."""
