"""MetricSink: where numbers, progress and words of a run go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the run is.

    Args:
        phase: what is going on: ``starting``, ``preflight``, ``evaluating``, ``sampling``, ``learning``, ``saving``,
            ``done``.
        iteration: the current one, from 1; 0 before the first.
        total_iterations: of the run.
        done: units finished within the phase (rollouts, steps).
        total: units of the phase; 0 when unknown.
        waiting_for: a few words on what the phase waits for, or None.
    """

    phase: str
    iteration: int = 0
    total_iterations: int = 0
    done: int = 0
    total: int = 0
    waiting_for: str | None = None


class MetricSink(Protocol):
    """Receives what a run reports. May raise: the logger records it and goes on without this sink."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Take the numbers of one iteration."""
        ...

    def progress(self, progress: Progress) -> None:
        """Take the run's position; called often."""
        ...

    def note(self, text: str) -> None:
        """Take a line that a person should read once."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...
