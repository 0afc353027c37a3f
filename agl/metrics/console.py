"""The console: one line an iteration, or a live display on a terminal; warnings of the log appear here too."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agl.metrics import board as words
from agl.metrics.base import Progress
from agl.metrics.board import Board

PLAIN_WIDTH = 80
HEARTBEAT_SECONDS = 15.0
_SHOWN_PER_MESSAGE = 3
_ANNOUNCED = ("starting", "preflight", "evaluating")
"""Phases outside the iterations, or rare: plain output says when they begin."""


class WarningNotes(logging.Handler):
    """Shows warnings and errors of the log as notes; the fourth of a kind is left to the log file.

    Args:
        note: shows a line.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._note = note
        self._seen: Counter[tuple[str, str]] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Show the record's message, without its traceback."""
        kind = (record.name, str(record.msg))
        self._seen[kind] += 1
        if self._seen[kind] > _SHOWN_PER_MESSAGE:
            return
        text = " ".join(record.getMessage().split())
        last = "  (more of these are in the log)" if self._seen[kind] == _SHOWN_PER_MESSAGE else ""
        try:
            self._note(f"{record.levelname.lower()}: {text}{last}")
        except (OSError, ValueError):  # whoever logs must not suffer; the next report finds out
            return


class PlainConsole:
    """Plain lines, for files, pipes and continuous integration.

    Args:
        out: where lines go.
        clock: seconds, monotonic.
    """

    def __init__(self, out: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._board = Board(started_at=clock())
        self._last_line_at = clock()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._warnings = WarningNotes(self.note)
        self._ticker = threading.Thread(target=self._tick, name="agl-console", daemon=True)

    def start(self) -> None:
        """Say that the run starts; show warnings from now on, and a sign of life when nothing was said for a while."""
        logging.getLogger().addHandler(self._warnings)
        self._write([self._phase_line(self._clock())])
        self._ticker.start()

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write one line, and a second one when something went wrong in the iteration."""
        now = self._clock()
        self._board.take_metrics(values, now)
        line = words.iteration_line(self._board.current, step, values, self._times(now), PLAIN_WIDTH)
        trouble = words.troubles(values)
        indent = " " * (len(words.position(step, self._board.current.total_iterations)) + 2)
        self._write([line, f"{indent}{words.counts(values) or ', '.join(trouble)}"] if trouble else [line])

    def progress(self, progress: Progress) -> None:
        """Note the position; the beginning of a phase outside the iterations is worth a line."""
        before = self._board.current.phase
        self._board.take_progress(progress, self._clock())
        if progress.phase != before and progress.phase in _ANNOUNCED:
            self._write([self._phase_line(self._clock())])
        else:
            self.beat()

    def note(self, text: str) -> None:
        """Write the line."""
        self._write([text])

    def beat(self) -> None:
        """Write what is going on, if nothing was written for ``HEARTBEAT_SECONDS``."""
        now = self._clock()
        if now - self._last_line_at >= HEARTBEAT_SECONDS and self._board.current.phase != "done":
            self._write([self._phase_line(now)])

    def close(self) -> None:
        """End the signs of life."""
        logging.getLogger().removeHandler(self._warnings)
        self._stop.set()
        if self._ticker.is_alive():
            self._ticker.join()

    def _phase_line(self, now: float) -> str:
        current = self._board.current
        where = (
            f"{words.position(current.iteration, current.total_iterations)}  " if current.iteration else ""
        )
        return f"{where}{words.phase_words(current)}  {self._times(now)}"

    def _times(self, now: float) -> str:
        left = self._board.remaining_seconds(now)
        elapsed = words.duration(self._board.elapsed_seconds(now))
        return elapsed if left is None else f"{elapsed}, {words.duration(left)} left"

    def _write(self, lines: list[str]) -> None:
        with self._lock:
            self._out.write("".join(f"{line.rstrip()}\n" for line in lines))
            self._out.flush()
            self._last_line_at = self._clock()

    def _tick(self) -> None:
        while not self._stop.wait(1.0):
            try:
                self.beat()
            except (OSError, ValueError):  # the reader of the pipe has gone; the next report finds out
                return


class LiveConsole:
    """A live display at the bottom of a terminal; notes scroll above it.

    Args:
        title: the run's name.
        console: the terminal; None is standard output.
        clock: seconds, monotonic.
    """

    def __init__(
        self, title: str, *, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console(highlight=False)
        self._clock = clock
        self._title = title
        self._board = Board(started_at=clock())
        self._live = Live(
            console=self._console,
            get_renderable=lambda: display(self._board, self._title, clock(), self._console.width),
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._warnings = WarningNotes(self.note)

    def start(self) -> None:
        """Begin to draw."""
        logging.getLogger().addHandler(self._warnings)
        self._live.start()

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Show the numbers."""
        del step
        self._board.take_metrics(values, self._clock())

    def progress(self, progress: Progress) -> None:
        """Show the position."""
        self._board.take_progress(progress, self._clock())

    def note(self, text: str) -> None:
        """Write the line above the display."""
        self._console.print(Text(text), soft_wrap=True)

    def close(self) -> None:
        """Leave the last picture standing."""
        logging.getLogger().removeHandler(self._warnings)
        self._live.stop()


def display(board: Board, title: str, now: float, width: int) -> RenderableType:
    """Return the picture of a run: position, phase, rewards, counters, update; at most 9 rows where nothing folds."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    bar = min(30, max(10, width - 50))
    table.add_row("iteration", _iteration(board, now, bar))
    table.add_row(board.current.phase, _phase(board.current, bar))
    table.add_row()
    for label, value in (
        ("train reward", _rewards(board.train_rewards, bar)),
        ("held-out reward", _rewards(board.val_rewards, bar, board.latest.get("val/reward_greedy"))),
        ("rollouts", words.counts(board.totals)),
        ("last update", _update(board.latest)),
    ):
        if value:
            table.add_row(label, value)
    return Group(Text(title, style="bold"), table)


def _iteration(board: Board, now: float, width: int) -> RenderableType:
    current = board.current
    ended = current.iteration if current.phase == "done" else max(0, current.iteration - 1)
    left = board.remaining_seconds(now)
    times = words.duration(board.elapsed_seconds(now))
    times += f", {words.duration(left)} left" if left is not None and current.phase != "done" else ""
    run = words.position(current.iteration, current.total_iterations).strip()
    return _bar(ended, current.total_iterations, width, Text(f"{run}  {times}"))


def _phase(current: Progress, width: int) -> RenderableType:
    waiting = f"waiting for {current.waiting_for}" if current.waiting_for else ""
    share = f"{current.done}/{current.total}  " if current.total else ""
    return _bar(current.done, current.total, width, Text(f"{share}{waiting}", style="dim"))


def _bar(done: int, total: int, width: int, text: Text) -> RenderableType:
    if not total:
        return text
    line = Table.grid(padding=(0, 2))
    line.add_column(width=width)
    line.add_row(
        ProgressBar(total=total, completed=done, width=width, complete_style="cyan", finished_style="cyan"),
        text,
    )
    return line


def _rewards(rewards: list[float], width: int, greedy: float | None = None) -> Text | None:
    if not rewards:
        return None
    line = Text.assemble((f"{rewards[-1]:.3f}", "bold"), "  ")
    line.append(words.sparkline(rewards, width), style="green" if rewards[-1] >= rewards[0] else "yellow")
    if len(rewards) > 1:
        line.append(f"  from {rewards[0]:.3f}", style="dim")
    if greedy is not None:
        line.append(f"  greedy {greedy:.3f}", style="dim")
    return line


def _update(latest: Mapping[str, float]) -> str:
    forms = [
        ("update/entropy", "entropy {:.2f}"),
        ("update/kl", "kl {:.4f}"),
        ("update/clip_fraction", "clip {:.2f}"),
        ("update/grad_norm", "grad {:.2f}"),
    ]
    parts = [words.written(form, latest[name]) for name, form in forms if name in latest]
    if "speed/tokens_per_second" in latest:
        parts.append(f"{words.short(latest['speed/tokens_per_second'])} tok/s")
    return "  ".join(parts)


def is_live_terminal() -> bool:
    """Tell whether standard output is a terminal that can be drawn on."""
    console = Console()
    return console.is_terminal and not console.is_dumb_terminal
