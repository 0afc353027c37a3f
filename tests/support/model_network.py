"""A network in memory with one model server at its end: what it is asked, and what it answers in turn.

Stands in for the event loop's ``create_connection``, so that all of our own code is under test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
import pytest

SILENT = "silent"
"""In place of an answer or a piece: nothing comes any more."""
CUT = "cut"
"""In place of an answer or a piece: the connection breaks."""


@dataclass
class Pieces:
    """An answer that is streamed."""

    pieces: tuple[bytes | str, ...]
    status: int = 200
    num_sent: int = 0
    step: asyncio.Event | None = None
    """Each piece waits for it."""
    packing: str | None = None


@dataclass
class ModelNetwork:
    """Answers with ``answers`` one after the other, the last one again and again. An OSError refuses the connection."""

    answers: list[Any] = field(default_factory=list)
    requests: list[httpx.Request] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    """The requests' targets as they were sent."""
    dialed: list[tuple[str, int]] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [orjson.loads(request.content) for request in self.requests]

    @property
    def num_closed(self) -> int:
        """Connections that the client closed."""
        return sum(line.closed_by_client for line in self.lines)

    def stream(self, *pieces: bytes | str, status: int = 200) -> Pieces:
        """An answer in pieces."""
        return Pieces(pieces, status)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stand in for the network of every event loop."""

        async def create_connection(
            loop: object, factory: Callable[[], asyncio.Protocol], host: str, port: int, **options: Any
        ) -> tuple[Line, asyncio.Protocol]:
            self.dialed.append((host, port))
            if isinstance(self.answers[0], OSError):
                raise self._next()
            if self.answers[0] == "unreachable":
                await asyncio.get_running_loop().create_future()
            line = Line(self, factory(), "https" if options.get("ssl") else "http")
            self.lines.append(line)
            line.protocol.connection_made(line)
            return line, line.protocol

        monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", create_connection)

    def take(self, line: Line, request: httpx.Request) -> None:
        self.requests.append(request)
        if isinstance(self.answers[0], OSError):  # nobody is there any more
            line.break_off()
            return
        task = asyncio.ensure_future(self._answer(line, self._next()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _next(self) -> Any:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def _answer(self, line: Line, answer: Any) -> None:
        if answer == SILENT:
            return
        if answer == CUT:
            line.break_off()
        elif isinstance(answer, Pieces):
            await self._stream(line, answer)
        else:
            headers = {**answer.headers, "content-length": str(len(answer.content))}
            line.say(_head(answer.status_code, headers) + answer.content)

    async def _stream(self, line: Line, answer: Pieces) -> None:
        packing = {} if answer.packing is None else {"content-encoding": answer.packing}
        line.say(_head(answer.status, {"transfer-encoding": "chunked", **packing}))
        for piece in answer.pieces:
            if answer.step is not None:
                await answer.step.wait()
                answer.step.clear()
            await line.writable.wait()
            await asyncio.sleep(0)
            if piece == SILENT or line.is_closing():
                return
            if piece == CUT:
                line.break_off()
                return
            assert isinstance(piece, bytes)
            answer.num_sent += 1
            line.say(b"%x\r\n%b\r\n" % (len(piece), piece))
        line.say(b"0\r\n\r\n")


class Line(asyncio.Transport):
    """One connection's transport."""

    def __init__(self, network: ModelNetwork, protocol: asyncio.Protocol, scheme: str) -> None:
        super().__init__()
        self.network, self.protocol, self.scheme = network, protocol, scheme
        self.writable = asyncio.Event()
        self.writable.set()
        self.closed_by_client = False
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        head, found, body = bytes(data).partition(b"\r\n\r\n")
        assert found, "the client writes a request in one piece"
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = [(name, value.encode("latin-1")) for name, value in (line.split(": ", 1) for line in lines)]
        lengths, (host,) = (
            [value for name, value in headers if name == key] for key in ("content-length", "host")
        )
        assert len(body) == int(lengths[0] if lengths else 0)
        self.network.targets.append(target)
        url = target if "://" in target else f"{self.scheme}://{host.decode()}{target}"
        self.network.take(self, httpx.Request(method, url, headers=headers, content=body))

    def say(self, data: bytes) -> None:
        """Send bytes from the server's side."""
        if not self._closed:
            self.protocol.data_received(data)

    def break_off(self) -> None:
        """End it from the server's side."""
        if not self._closed:
            self._closed = True
            self.protocol.connection_lost(ConnectionResetError("reset"))

    def pause_reading(self) -> None:
        self.writable.clear()

    def resume_reading(self) -> None:
        self.writable.set()

    def abort(self) -> None:
        if not self._closed:
            self._closed = self.closed_by_client = True
            self.writable.set()
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self._closed


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} x\r\n{lines}\r\n".encode()
