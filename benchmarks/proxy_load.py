"""The load of benchmarks/proxy.py: many clients in one process, over raw connections that cost next to nothing.

    python proxy_load.py < order.json

The order says which server, which paths in turn, how many connections and calls, whether to stream, and whose processor
time to read. Prints the numbers of the calls behind the warm-up as JSON.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson
import psutil

from agl.launch.event_loop import loop_factory

WARM_UP = 5
"""One call before the clock runs for so many measured ones."""
SAMPLES = 20
"""How often the memory of the server is read during the calls."""
_WORD = re.compile(rb'"content": ?"(\d+) "')
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to do.

    Args:
        root: of the server.
        paths: that calls go to in turn.
        connections: calls at once.
        calls: to measure.
        pid: of the server.
        stream: whether the answers are streamed.
        prompt_bytes: of each call's message.
        tokens: of each answer.
        headers: of each request.
    """

    root: str
    paths: list[str]
    connections: int
    calls: int
    pid: int
    stream: bool = False
    prompt_bytes: int = 600
    tokens: int = 128
    headers: dict[str, str] = field(default_factory=dict[str, str])

    def request(self, number: int) -> bytes:
        """Return the bytes of a call."""
        prompt = f"{number} " + "u" * self.prompt_bytes
        messages = [{"role": "system", "content": "s" * 400}, {"role": "user", "content": prompt}]
        asked = {
            "model": "policy",
            "messages": messages,
            "temperature": 1.0,
            "max_tokens": self.tokens,
            "stream": self.stream,
        }
        body = orjson.dumps(asked)
        fixed = {"host": urlsplit(self.root).netloc, "content-type": "application/json", **self.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in fixed.items())
        path = self.paths[number % len(self.paths)]
        return f"POST {path} HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body


@dataclass(slots=True)
class Seen:
    """What calls took, in seconds."""

    whole: list[float] = field(default_factory=list[float])
    first: list[float] = field(default_factory=list[float])
    """From the request to the first word of a stream."""
    delays: list[float] = field(default_factory=list[float])
    """From the model server's sending of a word to its arrival."""
    rates: list[float] = field(default_factory=list[float])
    """Words a second, of each stream."""
    words: int = 0


class Client(asyncio.Protocol):
    """One connection, one call at a time."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._transport: Any = None
        self._done: asyncio.Future[None] | None = None
        self._head = self._rest = b""
        self._missing: int | None = None
        self._sent = self._first = self._last = 0.0
        self._words = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The server hung up."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(SystemExit(f"the server closed the connection: {exc}"))

    async def call(self, request: bytes) -> None:
        """Send a request and note what its answer took."""
        self._done = asyncio.get_running_loop().create_future()
        self._head = self._rest = b""
        self._missing, self._words = None, 0
        self._sent = time.perf_counter()
        self._transport.write(request)
        await self._done
        seen = self._seen
        seen.whole.append(time.perf_counter() - self._sent)
        if self._words:
            seen.first.append(self._first - self._sent)
            seen.words += self._words
            if self._last > self._first:
                seen.rates.append((self._words - 1) / (self._last - self._first))

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        """A part of an answer has come."""
        if self._missing is None:
            self._head += data
            head, found, data = self._head.partition(b"\r\n\r\n")
            if not found:
                return
            if not head.startswith(b"HTTP/1.1 200"):
                self._fail(f"{head.decode()}\n{data[:500].decode()}")
                return
            length = _LENGTH.search(head)
            self._missing = -1 if length is None else int(length[1])  # -1: in chunks
        if self._missing >= 0:
            self._missing -= len(data)
            if self._missing == 0:
                self._end()
            return
        self._rest += data
        end = self._rest.rfind(b"\n\n")
        if end >= 0:
            self._read(self._rest[:end])
        if self._rest.endswith(b"\r\n0\r\n\r\n"):
            self._end()
        elif end >= 0:
            self._rest = self._rest[end:]

    def _read(self, events: bytes) -> None:
        """Note the words in these events."""
        now, now_ns = time.perf_counter(), time.monotonic_ns()
        for word in _WORD.finditer(events):
            self._seen.delays.append((now_ns - int(word[1])) / 1e9)
            if not self._words:
                self._first = now
            self._words += 1
            self._last = now

    def _end(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _fail(self, what: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(SystemExit(what))


async def load(order: Order, numbers: Iterator[int], watched: Watched | None = None) -> Seen:
    """Make the calls with these numbers and return what they took."""
    seen = Seen()
    parts = urlsplit(order.root)
    loop = asyncio.get_running_loop()

    async def talk() -> None:
        _, client = await loop.create_connection(lambda: Client(seen), parts.hostname, parts.port)
        for number in numbers:
            await client.call(order.request(number))
            if watched is not None:
                watched.note(len(seen.whole))
        client.close()

    await asyncio.gather(*(talk() for _ in range(order.connections)))
    return seen


class Watched:
    """The server's processor time and memory."""

    def __init__(self, order: Order) -> None:
        self._process = psutil.Process(order.pid)
        self._every = max(1, order.calls // SAMPLES)
        self._cpu = self._cpu_seconds()
        self.megabytes: list[float] = []

    def note(self, calls: int) -> None:
        """Read the memory now and then."""
        if calls % self._every == 0:
            self.megabytes.append(round(self._process.memory_info().rss / 2**20, 1))

    def cpu_seconds(self) -> float:
        """Return the processor time since the beginning."""
        return self._cpu_seconds() - self._cpu

    def _cpu_seconds(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system


def numbers_of(order: Order) -> dict[str, Any]:
    """Warm up, measure, summarize."""
    warm = max(order.connections, order.calls // WARM_UP)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(load(order, iter(range(warm))))
        watched = Watched(order)
        began = time.perf_counter()
        seen = runner.run(load(order, iter(range(warm, warm + order.calls)), watched))
        took = time.perf_counter() - began
    cpu = watched.cpu_seconds()
    told: dict[str, Any] = {
        **percentiles("", seen.whole),
        "calls/s": order.calls / took,
        "CPU ms a call": cpu / order.calls * 1e3,
        "megabytes": watched.megabytes,
    }
    if order.stream:
        if seen.words != order.calls * order.tokens:
            raise SystemExit(f"{seen.words} words have come of {order.calls * order.tokens}")
        told |= percentiles("first word ", seen.first) | percentiles("word's way ", seen.delays)
        told |= {
            "words/s": seen.words / took,
            "slowest stream, words/s": min(seen.rates, default=0.0),
            "fastest stream, words/s": max(seen.rates, default=0.0),
            "CPU us a word": cpu / seen.words * 1e6,
        }
    return told


def percentiles(name: str, seconds: list[float]) -> dict[str, float]:
    """Return the median and the 99th percentile in milliseconds."""
    ordered = sorted(seconds)
    return {
        f"{name}p50 ms": ordered[len(ordered) // 2] * 1e3,
        f"{name}p99 ms": ordered[len(ordered) * 99 // 100] * 1e3,
    }


def main() -> None:
    """Carry out the order and print the numbers."""
    print(json.dumps(numbers_of(Order(**json.load(sys.stdin)))))


if __name__ == "__main__":
    main()
