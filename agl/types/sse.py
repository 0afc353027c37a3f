"""Server-sent events: bytes as they come from a connection -> events, and back. Pure.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html; ``id`` and ``retry``, which are about connecting
again, are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass

DONE = b"[DONE]"
"""The data of the event that ends a stream of OpenAI's chat completions and completions."""

MAX_EVENT_BYTES = 64 * 1024 * 1024
"""A chunk of 100,000 prompt ids with the logprobs of a long answer is a tenth of that."""

_BOM = b"\xef\xbb\xbf"


class EventTooLargeError(ValueError):
    """An event does not end: what sends it does not speak server-sent events."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event."""

    event: str
    """Its type; ``message`` where the sender names none."""
    data: bytes
    """UTF-8 if the sender keeps to the specification; lines are joined by a line feed."""


class SseDecoder:
    """Reads the events of one stream, in pieces cut anywhere.

    Args:
        max_event_bytes: of one event.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._unended: list[bytes] = []
        self._event = ""
        self._data: list[bytes] = []
        self._num_bytes = 0
        self._at_start = True
        self._after_return = False

    @property
    def inside_event(self) -> bool:
        """Whether an event has begun and not ended; when the stream ends there, it was cut."""
        return bool(self._unended or self._data or self._event)

    def feed(self, piece: bytes) -> list[Event]:
        """Return the events that end in this piece.

        Raises:
            EventTooLargeError: an event is longer than allowed; nothing more can be read then.
        """
        piece = self._with_line_feeds(piece)
        self._num_bytes += len(piece)
        events: list[Event] = []
        if b"\n" in piece:
            first, *lines = piece.split(b"\n")
            lines.insert(0, b"".join((*self._unended, first)))
            last = lines.pop()
            self._unended = [last] if last else []
            if self._at_start:
                self._at_start = False
                lines[0] = lines[0].removeprefix(_BOM)
            for line in lines:
                self._read(line, events)
            self._num_bytes = len(last) + sum(map(len, self._data))
        elif piece:
            self._unended.append(piece)
        if self._num_bytes > self._max_event_bytes:
            raise EventTooLargeError(f"a server-sent event is longer than {self._max_event_bytes} bytes")
        return events

    def _with_line_feeds(self, piece: bytes) -> bytes:
        """Return the piece with each line's end a line feed; a return at its end may be half of one."""
        if self._after_return and piece:
            self._after_return = False
            piece = piece.removeprefix(b"\n")
        if b"\r" not in piece:
            return piece
        self._after_return = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _read(self, line: bytes, events: list[Event]) -> None:
        if not line:
            if self._data:
                events.append(Event(self._event or "message", b"\n".join(self._data)))
            self._event, self._data = "", []
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._event = value.decode("utf-8", "replace")


def encode(event: str | None, data: bytes) -> bytes:
    """Return an event's bytes; without type when ``event`` is None.

    Raises:
        ValueError: the type has a line's end in it.
    """
    head = b""
    if event is not None:
        if "\n" in event or "\r" in event:
            raise ValueError(f"the type of an event is one line, not {event!r}")
        head = b"event: " + event.encode() + b"\n"
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return head + b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"
