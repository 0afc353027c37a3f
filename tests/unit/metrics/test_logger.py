"""MetricLogger: everything reaches every sink; one that fails is dropped and said once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agl.metrics.base import Progress
from agl.metrics.logger import MetricLogger


class Memory:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.seen.append((step, dict(values)))

    def progress(self, progress: Progress) -> None:
        self.seen.append(progress.phase)

    def note(self, text: str) -> None:
        self.seen.append(text)

    def close(self) -> None:
        self.seen.append("closed")


class Keeping(Memory):
    def rewind(self, step: int) -> None:
        self.seen.append(("rewound", step))


class Broken(Memory):
    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        raise OSError("disk full")


def test_every_report_reaches_every_sink() -> None:
    first, second = Memory(), Keeping()
    with MetricLogger([first, second]) as logger:
        logger.metrics(1, {"train/reward": 0.5})
        logger.progress(Progress(phase="sampling"))
        logger.note("hello")
        logger.rewind(3)
    assert first.seen == [(1, {"train/reward": 0.5}), "sampling", "hello", "closed"]
    assert second.seen == [(1, {"train/reward": 0.5}), "sampling", "hello", ("rewound", 3), "closed"]


def test_a_sink_that_fails_is_dropped_once_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    broken, memory = Broken(), Memory()
    logger = MetricLogger([broken, memory])
    logger.metrics(1, {"a": 1.0})
    logger.metrics(2, {"a": 2.0})
    logger.note("hello")
    assert memory.seen == [(1, {"a": 1.0}), (2, {"a": 2.0}), "hello"]
    assert broken.seen == []
    assert [record.getMessage() for record in caplog.records] == [
        "Broken failed and gets no more metrics in this run: OSError: disk full"
    ]


def test_a_closed_logger_is_silent() -> None:
    memory = Memory()
    logger = MetricLogger([memory])
    logger.close()
    logger.note("late")
    logger.close()
    assert memory.seen == ["closed"]
