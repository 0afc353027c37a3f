"""The console: lines for files, a picture for terminals, warnings in both."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from agl.metrics.base import Progress
from agl.metrics.board import Board
from agl.metrics.console import LiveConsole, PlainConsole, WarningNotes, display, is_live_terminal


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def test_an_iteration_is_one_line(clock: Clock, out: io.StringIO) -> None:
    console = PlainConsole(out, clock=clock)
    console.progress(Progress(phase="sampling", iteration=1, total_iterations=20))
    clock.now = 6.0
    console.metrics(1, {"train/reward": 0.5, "rollouts/enqueued": 8, "rollouts/succeeded": 8})
    assert out.getvalue().splitlines() == [" 1/20  reward 0.500  8 ok".ljust(65) + "0:06, 1:54 left"]


def test_an_iteration_in_which_something_went_wrong_says_what(clock: Clock, out: io.StringIO) -> None:
    console = PlainConsole(out, clock=clock)
    values = {
        "train/reward": 0.5,
        "rollouts/enqueued": 8,
        "rollouts/succeeded": 7,
        "rollouts/failed": 1,
        "rollouts/failed/ValueError": 1,
    }
    console.metrics(1, values)
    assert out.getvalue().splitlines()[1] == "   8 enqueued, 7 succeeded, 1 failed (ValueError 1)"


def test_a_long_phase_gives_a_sign_of_life_every_fifteen_seconds(clock: Clock, out: io.StringIO) -> None:
    console = PlainConsole(out, clock=clock)
    for clock.now in (1.0, 14.0, 16.0, 20.0, 30.0, 32.0):
        console.progress(Progress(phase="sampling", iteration=1, total_iterations=9, done=3, total=8))
    assert out.getvalue().splitlines() == ["1/9  sampling 3/8  0:16", "1/9  sampling 3/8  0:32"]


def test_a_phase_outside_the_iterations_is_announced(clock: Clock, out: io.StringIO) -> None:
    console = PlainConsole(out, clock=clock)
    for _ in range(3):
        console.progress(Progress(phase="preflight", waiting_for="the first rollout"))
    console.progress(Progress(phase="done"))
    clock.now = 100.0
    console.beat()
    assert out.getvalue().splitlines() == ["preflight, waiting for the first rollout  0:00"]


def test_warnings_are_shown_while_the_console_is_open(clock: Clock, out: io.StringIO) -> None:
    console = PlainConsole(out, clock=clock)
    console.start()
    logging.getLogger("agl.somewhere").warning("a worker\nwas %s", "lost")
    console.close()
    logging.getLogger("agl.somewhere").warning("too late")
    assert out.getvalue() == "starting  0:00\nwarning: a worker was lost\n"


def test_the_fourth_warning_of_a_kind_is_left_to_the_log() -> None:
    shown: list[str] = []
    notes = WarningNotes(shown.append)
    for number in range(5):
        notes.emit(
            logging.LogRecord("agl.x", logging.WARNING, "x.py", 1, "rollout %s failed", (number,), None)
        )
    assert shown == [
        "warning: rollout 0 failed",
        "warning: rollout 1 failed",
        "warning: rollout 2 failed  (more of these are in the log)",
    ]


def test_code_that_logs_a_warning_does_not_suffer_from_a_reader_that_has_gone() -> None:
    def note(text: str) -> None:
        raise BrokenPipeError(text)

    log = logging.getLogger("test_console.gone")
    notes = WarningNotes(note)
    log.addHandler(notes)
    log.warning("the store is away")
    log.removeHandler(notes)


def test_a_reader_that_has_gone_is_an_error_for_the_logger_to_handle(clock: Clock, out: io.StringIO) -> None:
    console = PlainConsole(out, clock=clock)
    out.close()
    with pytest.raises(ValueError, match="closed file"):
        console.note("anyone?")


def board() -> Board:
    state = Board(started_at=0.0)
    state.take_metrics({"val/reward": 0.25, "val/reward_greedy": 0.5}, 0.0)
    for iteration, reward in enumerate((0.25, 0.5, 0.75), start=1):
        progress = Progress(
            phase="sampling",
            iteration=iteration,
            total_iterations=12,
            done=5,
            total=8,
            waiting_for="3 rollouts",
        )
        state.take_progress(progress, iteration * 10.0)
        values = {"train/reward": reward, "rollouts/enqueued": 8, "rollouts/succeeded": 8, "update/kl": 0.004}
        state.take_metrics({**values, "time/iteration_seconds": 10.0}, iteration * 10.0 + 9)
    return state


@pytest.mark.parametrize("width", [80, 120])
def test_the_picture_shows_the_run_and_fits_the_width(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(display(board(), "ppo_sql", 35.0, width))
    lines = console.export_text().splitlines()
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert len(lines) <= 9
    for shown in (
        "ppo_sql",
        "3/12  0:35, 1:35 left",
        "5/8  waiting for 3 rollouts",
        "train reward     0.750  ▁▅█  from 0.250",
        "held-out reward  0.250  ▄  greedy 0.500",
        "rollouts         24 enqueued, 24 succeeded",
        "last update      kl 0.0040",
    ):
        assert shown in text


def test_the_picture_of_a_run_that_has_not_begun_is_small() -> None:
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(display(Board(started_at=0.0), "ppo_sql", 1.0, 80))
    assert "starting" in console.export_text()


def test_a_live_display_leaves_notes_and_the_last_picture() -> None:
    terminal = Console(
        file=io.StringIO(), force_terminal=True, width=80, _environ={"NO_COLOR": "1", "TERM": "xterm"}
    )
    live = LiveConsole("ppo_sql", console=terminal, clock=lambda: 3.0)
    live.start()
    live.progress(Progress(phase="sampling", iteration=1, total_iterations=2))
    live.metrics(1, {"train/reward": 0.5})
    live.note("read this [once]")
    live.close()
    written = terminal.file.getvalue()  # type: ignore[attr-defined]
    assert "read this [once]" in written
    assert "train reward" in written
    assert "\x1b[3" not in written  # no colors


def test_a_pipe_is_no_live_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("TTY_COMPATIBLE", raising=False)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert not is_live_terminal()
