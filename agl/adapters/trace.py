"""The adapter: one attempt's spans in, trajectories and what was left out, by cause, out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from agl.adapters.trajectories import trajectories_from_triplets
from agl.adapters.triplets import calls_of_attempt
from agl.errors import ConfigError
from agl.types import Span, Trajectory, Triplet


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedAttempt:
    """What one attempt gives to training.

    Args:
        num_calls: recorded calls of the trained agents.
        num_exact: choices with exact ids and logprobs.
        trajectories: sequences to learn from.
        dropped: choices and sequences left out, by cause.
    """

    num_calls: int
    num_exact: int
    trajectories: list[Trajectory]
    dropped: Counter[str] = field(default_factory=Counter[str])


class TracerTraceToTriplet:
    """Turns spans into training data by exact ids only.

    Args:
        agents: names or regular expressions of the agents whose calls are trained; None is everyone.
        merge: join calls whose ids continue each other; False trains every call as its own sequence.
        max_tokens: longest sequence that is trained; longer ones are dropped and counted as ``too_long``.
    """

    def __init__(
        self, *, agents: Sequence[str] | None = None, merge: bool = True, max_tokens: int | None = None
    ) -> None:
        if agents is not None and (isinstance(agents, str) or not agents):
            raise ConfigError(f"agents={agents!r} must be a list of names, or null for everyone")
        for pattern in agents or ():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(f"agents: {pattern!r} is not a regular expression: {error}") from error
        if max_tokens is not None and max_tokens < 2:
            raise ConfigError(f"max_tokens={max_tokens}: a sequence has at least 2 tokens")
        self.agents, self.merge, self.max_tokens = agents, merge, max_tokens

    def triplets(self, spans: Sequence[Span]) -> list[Triplet]:
        """Return one triplet a call and choice with exact ids."""
        return calls_of_attempt(spans, agents=self.agents).triplets

    def adapt(self, spans: Sequence[Span]) -> AdaptedAttempt:
        """Return the sequences to learn from and the counts of what was left out."""
        calls = calls_of_attempt(spans, agents=self.agents)
        if self.merge:
            sequences = trajectories_from_triplets(calls.triplets)
        else:
            sequences = [one for call in calls.triplets for one in trajectories_from_triplets([call])]
        limit = self.max_tokens or max((len(sequence.token_ids) for sequence in sequences), default=0)
        kept = [sequence for sequence in sequences if len(sequence.token_ids) <= limit]
        dropped = calls.dropped.copy()
        if len(kept) < len(sequences):
            dropped["too_long"] += len(sequences) - len(kept)
        return AdaptedAttempt(
            num_calls=calls.num_calls, num_exact=len(calls.triplets), trajectories=kept, dropped=dropped
        )
