"""JsonlSink: one line a report, also after a crash in the middle of one."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from agl.metrics.base import Progress
from agl.metrics.jsonl import JsonlSink


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_numbers_are_appended_with_step_and_time(path: Path) -> None:
    sink = JsonlSink(path, clock=lambda: 1700000000.12345)
    sink.metrics(1, {"train/reward": 0.5})
    sink.progress(Progress(phase="sampling"))
    sink.note("words")
    JsonlSink(path, clock=lambda: 1.0).metrics(2, {"train/reward": 1})
    sink.close()
    assert lines(path) == [
        {"step": 1, "time": 1700000000.123, "train/reward": 0.5},
        {"step": 2, "time": 1.0, "train/reward": 1},
    ]


def test_what_is_no_number_is_null(path: Path) -> None:
    JsonlSink(path, clock=lambda: 0.0).metrics(1, {"a": math.nan, "b": math.inf, "c": 0.0})
    assert lines(path) == [{"step": 1, "time": 0.0, "a": None, "b": None, "c": 0.0}]


def test_rewinding_forgets_later_steps_and_a_torn_line(path: Path) -> None:
    sink = JsonlSink(path, clock=lambda: 0.0)
    for step in (0, 1, 2, 2, 3):
        sink.metrics(step, {})
    with path.open("a") as file:
        file.write('{"step": 2, "tra')
    sink.rewind(2)
    assert [line["step"] for line in lines(path)] == [0, 1, 2, 2]
    assert [file.name for file in path.parent.iterdir()] == ["metrics.jsonl"]


def test_a_torn_line_does_not_swallow_the_next(path: Path) -> None:
    path.write_text('{"step": 1, "tra')
    JsonlSink(path, clock=lambda: 0.0).metrics(2, {})
    assert path.read_text().splitlines() == ['{"step": 1, "tra', '{"step": 2, "time": 0.0}']


def test_rewinding_before_anything_was_written_is_nothing(path: Path) -> None:
    JsonlSink(path).rewind(0)
    assert not path.exists()
