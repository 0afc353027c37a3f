"""MetricSettings: which sinks a run gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from agl.metrics.settings import MetricSettings


def test_numbers_go_to_a_file_in_the_run_folder_and_to_the_console(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with MetricSettings(console="plain").open(tmp_path) as metrics:
        metrics.metrics(1, {"train/reward": 0.5})
    assert '"train/reward": 0.5' in (tmp_path / "metrics.jsonl").read_text()
    assert "reward 0.500" in capsys.readouterr().out


def test_both_can_be_turned_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with MetricSettings(console="off", jsonl=False).open(tmp_path) as metrics:
        metrics.metrics(1, {"train/reward": 0.5})
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""


def test_a_pipe_gets_plain_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with MetricSettings().open(tmp_path, title="mine") as metrics:
        metrics.note("hello")
    assert capsys.readouterr().out == "starting  0:00\nhello\n"
