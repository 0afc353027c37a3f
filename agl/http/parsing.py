"""Answers of HTTP/1.1 (RFC 9112), parsed by httptools where it is installed and by h11 where not.

The parsers are their libraries'; what is ours is the one shape in which an answer leaves them. A small answer
costs 0.06 ms more with h11 (benchmarks/store_client.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

MAX_HEAD_BYTES = 256 * 1024
"""Of an answer's status and headers. httptools sets no limit itself."""
MAX_BODY_BYTES = 256 * 1024 * 1024
"""Of a body, or of what came of a streamed one since it was last read."""


class BadAnswerError(Exception):
    """What came is no answer of HTTP, or too large for one."""


@dataclass(slots=True)
class Answer:
    """An answer, whole, or its head alone."""

    status: int
    body: bytes
    keep_alive: bool = True
    """Whether the connection takes another request."""
    headers: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    """Names in lower case."""

    @property
    def ends_with_the_connection(self) -> bool:
        """Whether nothing else says where the body ends."""
        is_chunked = b"chunked" in self.headers.get(b"transfer-encoding", b"").lower()
        return not is_chunked and b"content-length" not in self.headers


class Parser(Protocol):
    """Turns the bytes of one connection into answers."""

    @property
    def head(self) -> Answer | None:
        """The answer that has begun and not ended, without its body."""
        ...

    def begin(self) -> None:
        """Expect the answer to a request that is being sent."""
        ...

    def feed(self, data: bytes) -> Answer | None:
        """Take bytes; return the answer once it is whole, with what was not taken of its body.

        Raises:
            BadAnswerError: this is not HTTP.
        """
        ...

    def take(self) -> bytes:
        """Take what has come of the body since the last time."""
        ...

    def end(self) -> Answer | None:
        """The connection has ended: return the answer whose end that is, None where something is missing."""
        ...


def parser_maker() -> Callable[[], Parser]:
    """Return what makes the parser of a new connection."""
    return FastParser if find_spec("httptools") else PlainParser


class FastParser:
    """A parser by httptools (llhttp, in C)."""

    def __init__(self) -> None:
        httptools = import_module("httptools")
        self._events = _Events()
        self._parser: Any = httptools.HttpResponseParser(self._events)
        self._events.parser = self._parser
        self._error: type[Exception] = httptools.HttpParserError
        self._num_head_bytes = 0

    @property
    def head(self) -> Answer | None:
        """The answer under way."""
        return self._events.head

    def begin(self) -> None:
        """Expect an answer."""
        self._num_head_bytes = 0

    def feed(self, data: bytes) -> Answer | None:
        """Take bytes; return the answer once it is whole."""
        events = self._events
        try:
            self._parser.feed_data(data)
        except self._error as error:
            raise BadAnswerError(str(error)) from error
        answer, events.answer = events.answer, None
        if answer is None:
            self._check_sizes(len(data))
        return answer

    def take(self) -> bytes:
        """Take what has come of the body."""
        return self._events.take()

    def end(self) -> Answer | None:
        """Return the answer that ends with the connection."""
        head = self._events.head
        if head is None or not head.ends_with_the_connection:
            return None
        return Answer(head.status, self._events.take(), keep_alive=False, headers=head.headers)

    def _check_sizes(self, num_bytes: int) -> None:
        if self._events.head is None:
            self._num_head_bytes += num_bytes
            if self._num_head_bytes > MAX_HEAD_BYTES:
                raise BadAnswerError(f"headers of more than {MAX_HEAD_BYTES} bytes")
        elif self._events.num_body_bytes > MAX_BODY_BYTES:
            raise BadAnswerError(f"a body of more than {MAX_BODY_BYTES} bytes")


class _Events:
    """What httptools calls while it reads."""

    def __init__(self) -> None:
        self.parser: Any = None
        self.head: Answer | None = None
        self.answer: Answer | None = None
        self.num_body_bytes = 0
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []

    def on_message_begin(self) -> None:
        self.head, self.num_body_bytes = None, 0
        self._headers, self._body = {}, []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        if status >= 200:
            self.head = Answer(status, b"", headers=self._headers)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        self.num_body_bytes += len(body)

    def on_message_complete(self) -> None:
        head, self.head = self.head, None
        if head is not None:
            head.body, head.keep_alive = self.take(), self.parser.should_keep_alive()
            self.answer = head

    def take(self) -> bytes:
        parts = self._body
        if not parts:
            return b""
        self._body, self.num_body_bytes = [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)


class PlainParser:
    """A parser by h11 (in Python), which limits heads itself."""

    def __init__(self) -> None:
        self._h11: Any = import_module("h11")
        self._connection: Any = self._h11.Connection(
            self._h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES
        )
        self._head: Answer | None = None
        self._body: list[bytes] = []
        self._num_body_bytes = 0

    @property
    def head(self) -> Answer | None:
        """The answer under way."""
        return self._head

    def begin(self) -> None:
        """Expect an answer: h11 wants to know of a request; its wording does not matter."""
        h11 = self._h11
        self._connection.send(h11.Request(method="GET", target="/", headers=[("host", "-")]))
        self._connection.send(h11.EndOfMessage())

    def feed(self, data: bytes) -> Answer | None:
        """Take bytes; return the answer once it is whole."""
        if not data:
            return None
        try:
            answer = self._fed(data)
        except self._h11.RemoteProtocolError as error:
            raise BadAnswerError(str(error)) from error
        if self._num_body_bytes > MAX_BODY_BYTES:
            raise BadAnswerError(f"a body of more than {MAX_BODY_BYTES} bytes")
        return answer

    def take(self) -> bytes:
        """Take what has come of the body."""
        body = b"".join(self._body)
        self._body.clear()
        self._num_body_bytes = 0
        return body

    def end(self) -> Answer | None:
        """Return the answer that ends with the connection."""
        if self._head is None:
            return None
        try:
            answer = self._fed(b"")
        except self._h11.RemoteProtocolError:
            return None
        if answer is not None:
            answer.keep_alive = False
        return answer

    def _fed(self, data: bytes) -> Answer | None:
        h11, connection = self._h11, self._connection
        connection.receive_data(data)
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return None
            if isinstance(event, h11.Response):
                headers = {bytes(name): bytes(value) for name, value in event.headers}
                self._head, self._body = Answer(event.status_code, b"", headers=headers), []
            elif isinstance(event, h11.Data):
                self._body.append(bytes(event.data))
                self._num_body_bytes += len(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return self._whole()

    def _whole(self) -> Answer | None:
        answer, self._head = self._head, None
        if answer is None:
            return None
        answer.keep_alive = self._connection.their_state is self._h11.DONE
        if answer.keep_alive:
            self._connection.start_next_cycle()
        answer.body = self.take()
        return answer
