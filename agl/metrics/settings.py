"""MetricSettings: which sinks a run has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from agl.metrics.base import MetricSink
from agl.metrics.jsonl import JsonlSink
from agl.metrics.logger import MetricLogger

ConsoleMode = Literal["auto", "plain", "rich", "off"]
METRICS_FILE = "metrics.jsonl"


class MetricSettings:
    """Where the run's numbers go.

    Args:
        console: ``rich`` is a live display, ``plain`` one line an iteration, ``off`` nothing; ``auto`` is rich on a
            terminal and plain elsewhere.
        jsonl: append to ``metrics.jsonl`` in the run folder.
    """

    def __init__(self, *, console: ConsoleMode = "auto", jsonl: bool = True) -> None:
        self._console: ConsoleMode = console
        self._jsonl = jsonl

    def open(self, run_dir: Path | None, *, title: str | None = None) -> MetricLogger:
        """Start the sinks of a run; closing the logger ends them.

        Args:
            run_dir: where files go; it exists. None is no files: the run's numbers are another process's.
            title: the run's name on the display; None is the folder's name.
        """
        sinks: list[MetricSink] = []
        if self._jsonl and run_dir is not None:
            sinks.append(JsonlSink(run_dir / METRICS_FILE))
        console = _console(self._console, title or (run_dir.name if run_dir is not None else "run"))
        return MetricLogger([*sinks, console] if console is not None else sinks)


def _console(mode: ConsoleMode, title: str) -> MetricSink | None:
    if mode == "off":
        return None
    from agl.metrics.console import LiveConsole, PlainConsole, is_live_terminal

    console = (
        LiveConsole(title)
        if mode == "rich" or (mode == "auto" and is_live_terminal())
        else PlainConsole(sys.stdout)
    )
    console.start()
    return console
