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


class BadAnswerError(Exception):
    """What came is no answer of HTTP."""


@dataclass(slots=True)
class Answer:
    """An answer, whole."""

    status: int
    body: bytes
    keep_alive: bool = True
    """Whether the connection takes another request."""
    headers: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    """Names in lower case."""


class Parser(Protocol):
    """Turns the bytes of one connection into answers."""

    def begin(self) -> None:
        """Expect the answer to a request that is being sent."""
        ...

    def feed(self, data: bytes) -> Answer | None:
        """Take bytes; return the answer once it is whole.

        Raises:
            BadAnswerError: this is not HTTP.
        """
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

    def begin(self) -> None:
        """Expect an answer: nothing to prepare."""

    def feed(self, data: bytes) -> Answer | None:
        """Take bytes; return the answer once it is whole."""
        try:
            self._parser.feed_data(data)
        except self._error as error:
            raise BadAnswerError(str(error)) from error
        answer, self._events.answer = self._events.answer, None
        return answer


class _Events:
    """What httptools calls while it reads."""

    def __init__(self) -> None:
        self.parser: Any = None
        self.answer: Answer | None = None
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []

    def on_message_begin(self) -> None:
        self._headers, self._body = {}, []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self.parser.get_status_code()
        if status >= 200:
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self.answer = Answer(status, body, self.parser.should_keep_alive(), self._headers)


class PlainParser:
    """A parser by h11 (in Python)."""

    def __init__(self) -> None:
        self._h11: Any = import_module("h11")
        self._connection: Any = self._h11.Connection(self._h11.CLIENT)
        self._head: Any = None
        self._body: list[bytes] = []

    def begin(self) -> None:
        """Expect an answer: h11 wants to know of a request; its wording does not matter."""
        h11 = self._h11
        self._connection.send(h11.Request(method="GET", target="/", headers=[("host", "-")]))
        self._connection.send(h11.EndOfMessage())

    def feed(self, data: bytes) -> Answer | None:
        """Take bytes; return the answer once it is whole."""
        h11, connection = self._h11, self._connection
        try:
            connection.receive_data(data)
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return None
                if isinstance(event, h11.Response):
                    self._head, self._body = event, []
                elif isinstance(event, h11.Data):
                    self._body.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    return self._whole()
        except h11.RemoteProtocolError as error:
            raise BadAnswerError(str(error)) from error

    def _whole(self) -> Answer:
        keep_alive = self._connection.their_state is self._h11.DONE
        if keep_alive:
            self._connection.start_next_cycle()
        headers = {bytes(name): bytes(value) for name, value in self._head.headers}
        return Answer(self._head.status_code, b"".join(self._body), keep_alive, headers)
