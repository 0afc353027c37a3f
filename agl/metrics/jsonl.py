"""JsonlSink: every report of numbers as one JSON line.

``{"step": 3, "time": 1700000000.0, "train/reward": 0.5, ...}``
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from agl.metrics.base import Progress


class JsonlSink:
    """Appends to a file; a number that is not finite is written as null, as JSON has no other word for it.

    Args:
        path: the file; made when the first numbers come.
        clock: Unix seconds.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Append a line."""
        numbers = {name: value if math.isfinite(value) else None for name, value in values.items()}
        line = json.dumps({"step": step, "time": round(self._clock(), 3), **numbers}, allow_nan=False)
        with self._path.open("ab+") as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
                if file.read(1) != b"\n":  # the line that a killed process did not finish
                    file.write(b"\n")
            file.write(line.encode() + b"\n")

    def progress(self, progress: Progress) -> None:
        """Keep nothing: positions are not numbers of the run."""

    def note(self, text: str) -> None:
        """Keep nothing: words are in the log."""

    def close(self) -> None:
        """Do nothing: every line is on disk already."""

    def rewind(self, step: int) -> None:
        """Remove the lines of later steps, and a line that a killed process did not finish."""
        if not self._path.is_file():
            return
        kept = [line for line in self._path.read_bytes().splitlines() if _is_up_to(line, step)]
        unfinished = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        unfinished.write_bytes(b"".join(line + b"\n" for line in kept))
        unfinished.replace(self._path)


def _is_up_to(line: bytes, step: int) -> bool:
    try:
        return json.loads(line)["step"] <= step
    except (ValueError, KeyError, TypeError):
        return False
