"""KeptBytes: the beginning and the end of a stream of any length, and how much between them was left out."""

from __future__ import annotations

import codecs

KEPT_BYTES = 64 * 1024
"""Of each stream of an attempt: half from its beginning, half from its end."""


class KeptBytes:
    """Takes a stream piece by piece; memory stays bounded.

    Args:
        limit: the most bytes that are kept, a small multiple while the stream goes on.
    """

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self.num_bytes = 0
        """All that came, kept or not."""
        self._half = max(1, limit // 2)
        self._head, self._tail = bytearray(), bytearray()

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        self.num_bytes += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._half :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        """Return what is kept as text, with a line that says what was left out; what is no UTF-8 becomes �."""
        tail = bytes(self._tail[-self._half :])
        cut = self.num_bytes - len(self._head) - len(tail)
        if not cut:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        while tail and len(tail) > self._half - 4 and 0x80 <= tail[0] < 0xC0:  # the rest of a cut character
            tail = tail[1:]
        begin = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))
        return f"{begin}\n[... {cut} bytes left out ...]\n{tail.decode('utf-8', 'replace')}"

    def end(self, num_chars: int) -> str:
        """Return the last characters of the stream, without space around them."""
        return self.text().strip()[-num_chars:]
