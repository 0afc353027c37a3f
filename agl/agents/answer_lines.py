"""AnswerLines: what a program's standard output says of its reward, read while it comes, in bounded memory."""

from __future__ import annotations

import json
from typing import Any, cast

MAX_LINE_BYTES = 1024 * 1024
"""A longer line says nothing that is looked for."""
_KEY = b'"reward"'


class AnswerLines:
    """Watches for the last line that is a JSON object with a ``reward``, and for the last line at all."""

    def __init__(self) -> None:
        self.reward: object = None
        """What the last such line says."""
        self._last = b""
        self._partial = b""
        self._too_long = False

    @property
    def last(self) -> object:
        """The last line that is not empty: as JSON where it is JSON, else as text; None where nothing came."""
        if not self._last:
            return None
        try:
            return json.loads(self._last)
        except ValueError:
            return self._last.decode("utf-8", "replace")

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        end = data.rfind(b"\n")
        if end < 0:
            self._begin(data)
            return
        complete = data[:end] if self._too_long else self._partial + data[:end]
        if self._too_long:
            complete = complete.partition(b"\n")[2]
        self._take(complete)
        self._partial, self._too_long = b"", False
        self._begin(data[end + 1 :])

    def end(self) -> None:
        """There is no more: a last line without its end counts."""
        if not self._too_long:
            self._take(self._partial)
        self._partial = b""

    def _begin(self, data: bytes) -> None:
        self._too_long = self._too_long or len(self._partial) + len(data) > MAX_LINE_BYTES
        self._partial = b"" if self._too_long else self._partial + data

    def _take(self, lines: bytes) -> None:
        last = lines.rstrip().rpartition(b"\n")[2].strip()
        if last:
            self._last = last
        at = lines.rfind(_KEY)
        while at >= 0:
            begin, end = lines.rfind(b"\n", 0, at) + 1, lines.find(b"\n", at)
            said = _object(lines[begin : end if end >= 0 else None])
            if "reward" in said:
                self.reward = said["reward"]
                return
            at = lines.rfind(_KEY, 0, begin)


def _object(line: bytes) -> dict[str, Any]:
    """The JSON object in a line, empty when it is none."""
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}
