"""How far a command is, on standard error: drawn in place on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from agl.evaluation.waiting import WaitedFor

LINE_SECONDS = 15.0
"""Between lines where nothing can be drawn."""
WIDTH = 79


class Progress:
    """Shows one line; a context manager that takes it away at the end, whatever happens.

    Args:
        out: where to.
        verb: what is done, such as ``evaluating``.
        clock: seconds, never going back.
    """

    def __init__(self, out: TextIO, verb: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._out, self._verb, self._clock = out, verb, clock
        self._is_drawn, self._width, self._next_line = out.isatty(), 0, clock() + LINE_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.draw("")

    def waited(self, waited: WaitedFor) -> None:
        """Show how many of the rollouts are done, and who keeps the others waiting."""
        words = f"; waiting for {waited.words}" if waited.words else ""
        line = f"{self._verb} {waited.done}/{waited.total}{words}"
        if self._is_drawn:
            self.draw("" if waited.done == waited.total else line)
        elif self._clock() >= self._next_line and waited.done < waited.total:
            self.note(line)

    def tell(self, words: str) -> None:
        """Show how far something is of which nobody knows the end, such as ``200 rollouts``."""
        line = f"{self._verb} {words}"
        if self._is_drawn:
            self.draw(line)
        elif self._clock() >= self._next_line:
            self.note(line)

    def note(self, text: str) -> None:
        """Show a line that stays."""
        self.draw("")
        print(text, file=self._out, flush=True)
        self._next_line = self._clock() + LINE_SECONDS

    def draw(self, line: str) -> None:
        """Put the line in place of the one before, on a terminal; an empty one takes it away."""
        if self._is_drawn and (line or self._width):
            shown = line[:WIDTH]
            print(f"\r{shown:{self._width}}\r{shown}", end="", file=self._out, flush=True)
            self._width = len(shown)
