"""ShiftedMetrics: the metrics of a stage as part of its run's: later steps, and its name before every line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agl.metrics.base import Progress
from agl.metrics.logger import MetricLogger


class ShiftedMetrics:
    """A sink that hands on to the run's.

    Args:
        metrics: of the run.
        stage: whose reports these are.
        first_step: the run's step that is the stage's step 0.
    """

    def __init__(self, metrics: MetricLogger, *, stage: str, first_step: int) -> None:
        self._metrics, self._stage, self._first = metrics, stage, first_step
        self.last_step = first_step
        """The latest step of the run that the stage reported."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Report a step."""
        self.last_step = max(self.last_step, self._first + step)
        self._metrics.metrics(self._first + step, values)

    def progress(self, progress: Progress) -> None:
        """Report the position within the stage."""
        total = progress.total_iterations
        self._metrics.progress(
            replace(
                progress,
                phase=f"{self._stage}: {progress.phase}",
                iteration=self._first + progress.iteration,
                total_iterations=self._first + total if total else 0,
            )
        )

    def note(self, text: str) -> None:
        """Report a line."""
        self._metrics.note(f"{self._stage}: {text}")

    def rewind(self, step: int) -> None:
        """Forget what the stage reported for later steps."""
        self.last_step = self._first + max(step, 0)
        self._metrics.rewind(self._first + step)

    def close(self) -> None:
        """Leave the run's metrics open."""
