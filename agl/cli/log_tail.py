"""The end of a growing file, and what is written to it from then on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

_BLOCK = 64 * 1024
LOOK_SECONDS = 0.3
"""Between two looks at a file that somebody else writes."""


def last_lines(file: Path, count: int) -> tuple[list[str], int]:
    """Return the last ``count`` lines (0 is all) that are whole, and the place in the file behind them."""
    with file.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        begin, read = size, b""
        while begin > 0 and (count == 0 or read.count(b"\n") <= count):
            step = min(begin, max(_BLOCK, len(read)))
            begin -= step
            log.seek(begin)
            read = log.read(step) + read
    whole, _, rest = read.rpartition(b"\n")
    lines = whole.split(b"\n") if whole or len(read) > len(rest) else []
    shown = lines[-count:] if count else lines
    return [_text(line) for line in shown], size - len(rest)


def lines_from(
    file: Path, place: int, *, has_ended: Callable[[], bool], sleep: Callable[[float], object]
) -> Iterator[str]:
    """Yield the lines behind that place as they are written, until the writer has ended and all was read.

    Args:
        file: somebody appends to it; where it is shorter than it was, it is read from its beginning.
        place: bytes from its beginning.
        has_ended: whether nobody will write any more.
        sleep: waits so many seconds.
    """
    rest = b""
    while True:
        ended = has_ended()  # before reading: what was written until then is read
        try:
            with file.open("rb") as log:
                if log.seek(0, os.SEEK_END) < place:
                    place, rest = 0, b""
                log.seek(place)
                read = log.read()
        except FileNotFoundError:  # the run's folder is gone
            return
        place += len(read)
        *lines, rest = (rest + read).split(b"\n")
        yield from map(_text, lines)
        if ended:
            if rest:
                yield _text(rest)
            return
        if not read:
            sleep(LOOK_SECONDS)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")
