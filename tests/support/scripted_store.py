"""A store's wire end in memory: the client's connections lead here, and the test says what is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from agl.store.client import HttpStore

IDENTITY = "11111111-1111-1111-1111-111111111111"
URL = "http://127.0.0.1:4747"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body) if self.body else None

    @property
    def what(self) -> str:
        return f"{self.method} {self.target}"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to send."""

    value: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None

    def encoded(self) -> bytes:
        body = orjson.dumps(self.value) if self.raw is None else self.raw
        lines = [f"HTTP/1.1 {self.status} x", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body


def refused(status: int, code: str, message: str = "why", **headers: str) -> Reply:
    """The store's own refusal."""
    return Reply({"error": {"code": code, "message": message}}, status, headers)


BREAKS = Reply(status=0)
"""Instead of an answer the connection ends."""
Answering = Callable[[Asked], Any]


class ScriptedStore:
    """Answers health and the look at workers by itself, everything else as ``on`` was told."""

    def __init__(self) -> None:
        self.identity = IDENTITY
        self.down = False
        """Nobody listens."""
        self.asked: list[Asked] = []
        self.connections: list[Line] = []
        self._answers: dict[str, Answering] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.on("GET /v1/health", lambda _: {"status": "ok", "identity": self.identity})
        self.on("GET /v1/workers", lambda _: {"items": [], "next_cursor": None})

    def on(self, what: str, answer: Answering | list[Any]) -> None:
        """Answer requests of this verb and path: by a function (plain or async), or by each of a list in turn."""
        if isinstance(answer, list):
            left = iter(answer)
            self._answers[what] = lambda _: next(left)
        else:
            self._answers[what] = answer

    def asked_for(self, what: str) -> list[Asked]:
        """The requests of this verb and path so far."""
        return [one for one in self.asked if one.what.partition("?")[0] == what]

    async def dial(self, factory: Callable[[], asyncio.Protocol]) -> None:
        """Connect, as a client's ``dial``."""
        if self.down:
            raise ConnectionRefusedError("nobody listens")
        line = Line(self, factory())
        self.connections.append(line)
        line.protocol.connection_made(line)

    def break_all(self) -> None:
        """End all connections, as a server does that dies."""
        for line in self.connections:
            line.break_off()

    def take(self, line: Line, asked: Asked) -> None:
        self.asked.append(asked)
        task = asyncio.ensure_future(self._answer(line, asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, line: Line, asked: Asked) -> None:
        answer = self._answers[asked.what.partition("?")[0]](asked)
        if isinstance(answer, Awaitable):
            answer = await answer
        reply = answer if isinstance(answer, Reply) else Reply(answer)
        if reply is BREAKS:
            line.break_off()
        elif not line.is_closing():
            line.protocol.data_received(reply.encoded())


class Line(asyncio.Transport):
    """One connection's transport."""

    def __init__(self, store: ScriptedStore, protocol: asyncio.Protocol, **extra: object) -> None:
        super().__init__(extra)
        self.store = store
        self.protocol = protocol
        self._received = b""
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._received += bytes(data)
        head, found, rest = self._received.partition(b"\r\n\r\n")
        assert found, "the client writes a request in one piece"
        first, *lines = head.decode("ascii").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        length = int(headers.get("content-length", 0))
        assert len(rest) == length, "one request at a time"
        self._received = b""
        method, target, _ = first.split(" ")
        self.store.take(self, Asked(method, target, headers, rest))

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def break_off(self) -> None:
        """End it from the server's side."""
        if not self._closed:
            self._closed = True
            self.protocol.connection_lost(ConnectionResetError("reset by peer"))

    def is_closing(self) -> bool:
        return self._closed


async def until(condition: Callable[[], object]) -> None:
    """Let the event loop go round until something holds."""
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)


class Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.naps: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds


def client_of(
    server: ScriptedStore, *, time: Time | None = None, url: str = URL, **settings: Any
) -> HttpStore:
    """A client of the scripted store, with a minute's patience, full jitter at its upper end and ids that count."""
    time = time or Time()
    counts: dict[str, int] = {}

    def new_id(prefix: str) -> str:
        counts[prefix] = counts.get(prefix, 0) + 1
        return f"{prefix}-{counts[prefix]}"

    return HttpStore(
        url,
        dial=server.dial,
        clock=time.clock,
        sleep=time.sleep,
        rng=lambda: 1.0,
        new_id=new_id,
        **{"retry_seconds": 60.0, **settings},
    )
