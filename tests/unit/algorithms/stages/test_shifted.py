"""A stage's reports are its run's, later and by its name."""

from __future__ import annotations

from run_contexts import Notebook

from agl.algorithms.stages.shifted import ShiftedMetrics
from agl.metrics.base import Progress
from agl.metrics.logger import MetricLogger


def test_steps_are_later_and_lines_are_named() -> None:
    book = Notebook()
    shifted = ShiftedMetrics(MetricLogger([book]), stage="rl", first_step=5)
    logger = MetricLogger([shifted])
    logger.metrics(0, {"a": 1.0})
    logger.metrics(3, {"a": 2.0})
    logger.note("hello")
    logger.progress(Progress(phase="sampling", iteration=1, total_iterations=4))
    assert (book.values, book.notes, book.phases) == (
        {5: {"a": 1.0}, 8: {"a": 2.0}},
        ["rl: hello"],
        ["rl: sampling"],
    )
    assert shifted.last_step == 8
    logger.rewind(1)
    assert (book.rewound, shifted.last_step) == ([6], 6)
    logger.rewind(-1)
    assert (book.rewound, shifted.last_step) == ([6, 4], 5)
    logger.close()
