"""Progress on standard error: in place on a terminal, rare lines elsewhere, and nothing left behind."""

from __future__ import annotations

import io

import pytest

from agl.cli.progress import LINE_SECONDS, Progress
from agl.evaluation.waiting import WaitedFor


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def seen(text: str) -> str:
    """What stands on the terminal's last line."""
    line = ""
    for part in text.rpartition("\n")[2].split("\r"):
        line = part + line[len(part) :]
    return line.rstrip()


def test_a_terminal_shows_the_newest_line_alone() -> None:
    out = Terminal()
    progress = Progress(out, "evaluating")
    progress.draw("starting with something long")
    progress.waited(WaitedFor(done=1, total=3, words="r1 on host"))
    assert seen(out.getvalue()) == "evaluating 1/3; waiting for r1 on host"
    progress.waited(WaitedFor(done=2, total=3))
    assert seen(out.getvalue()) == "evaluating 2/3"
    progress.note("a line that stays")
    assert out.getvalue().endswith("a line that stays\n")
    progress.waited(WaitedFor(done=3, total=3))
    assert seen(out.getvalue()) == ""


def test_an_error_finds_the_line_empty() -> None:
    out = Terminal()

    def fails() -> None:
        with Progress(out, "evaluating") as progress:
            progress.draw("starting")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()
    assert seen(out.getvalue()) == ""


def test_a_line_never_wraps() -> None:
    out = Terminal()
    Progress(out, "x").draw("y" * 500)
    assert len(seen(out.getvalue())) == 79


def test_a_file_gets_a_line_now_and_then_and_no_control_characters() -> None:
    out, clock = io.StringIO(), Clock()
    with Progress(out, "evaluating", clock=clock) as progress:
        progress.draw("starting")
        progress.waited(WaitedFor(done=1, total=9))
        clock.now += LINE_SECONDS
        progress.waited(WaitedFor(done=2, total=9))
        progress.waited(WaitedFor(done=3, total=9))
        clock.now += LINE_SECONDS
        progress.waited(WaitedFor(done=9, total=9))
    assert out.getvalue() == "evaluating 2/9\n"


def test_work_without_a_known_end_is_told_in_place_or_now_and_then() -> None:
    out, clock = Terminal(), Clock()
    progress = Progress(out, "exporting", clock=clock)
    progress.tell("200 rollouts")
    assert seen(out.getvalue()) == "exporting 200 rollouts"
    file = io.StringIO()
    progress = Progress(file, "exporting", clock=clock)
    progress.tell("1 rollout")
    clock.now += LINE_SECONDS
    progress.tell("2 rollouts")
    assert file.getvalue() == "exporting 2 rollouts\n"
