"""The connections of one event loop to the store: an exchange takes the one used last, or opens another.

Finding an idle connection is O(1) however many there are, and an exchange is one write and one wake-up: 0.02 to 0.06 ms
of processor time a call, where httpx takes 0.6 to 1.8 ms and httpcore 0.4 to 2.3 ms (benchmarks/store_client.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from agl.store.client.address import Dial
from agl.store.client.parsing import Answer, BadAnswerError, Parser

MAX_CONNECTIONS = 64
"""Calls beyond so many at once wait for one to end; long polls, which mostly sleep, do not count."""
IDLE_SECONDS = 4.0
"""A connection unused for longer is not used again: servers end idle ones, uvicorn after 5 s."""
CONNECT_SECONDS = 10.0
CLOSED = "the store was closed on this side"


class NotSentError(Exception):
    """No connection came about, so nothing was sent."""


class LostError(Exception):
    """The connection ended before the answer: whether the call was carried out is unknown.

    Args:
        cause: what happened.
        stale: an idle connection turned out to be dead, as after a restart of the server.
    """

    def __init__(self, cause: str, *, stale: bool = False) -> None:
        super().__init__(cause)
        self.stale = stale


class NotHttpError(Exception):
    """Something answered that does not speak HTTP."""


class PollCutError(Exception):
    """This side ended a long poll, because the store is closing."""


class Connection(asyncio.Protocol):
    """One connection: one exchange at a time."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard = self._used = False
        self.idle_since = 0.0
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast("asyncio.Transport", transport)
        self.open = True

    @property
    def talks_to_itself(self) -> bool:
        """Whether both ends are this one: TCP can connect a port to itself while nobody listens there."""
        if self._transport is None:
            return False
        here: object = self._transport.get_extra_info("sockname")
        there: object = self._transport.get_extra_info("peername")
        return here is not None and here == there

    def data_received(self, data: bytes) -> None:
        """A part of an answer has come."""
        waiting = self._waiting
        if waiting is None:
            self.abort()  # an answer to nothing: this is not a server to talk to
            return
        self._heard = True
        try:
            answer = self._parser.feed(data)
        except BadAnswerError as error:
            self.fail(NotHttpError(str(error)))
            return
        if answer is None:
            return
        self._settle()
        self._used = True
        self.idle_since = self._loop.time()
        if not answer.keep_alive:
            self.abort()
        if not waiting.done():
            waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self.open = False
        self._transport = None
        cause = f"the connection broke ({exc or 'closed by the server'})"
        self.fail(LostError(cause, stale=self._used and not self._heard))

    def exchange(self, data: bytes, seconds: float) -> asyncio.Future[Answer]:
        """Send a request; the future has its answer, or LostError (also when none came in time) or NotHttpError."""
        waiting = self._waiting = self._loop.create_future()
        self._heard = False
        if self._transport is None:
            self.fail(LostError("the connection broke", stale=self._used))
            return waiting
        self._parser.begin()
        self._timer = self._loop.call_later(
            seconds, self.fail, LostError(f"no answer within {seconds:.3g} s")
        )
        self._transport.write(data)
        return waiting

    def fail(self, error: Exception) -> None:
        """End the exchange, and with it the connection."""
        waiting = self._waiting
        self._settle()
        self.abort()
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def abort(self) -> None:
        """Close at once."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def _settle(self) -> None:
        self._waiting = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Connections:
    """All connections of one event loop."""

    def __init__(self, dial: Dial, make_parser: Callable[[], Parser]) -> None:
        self._dial = dial
        self._make_parser = make_parser
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._polls: set[Connection] = set()
        self._closed = self._polls_are_cut = False

    async def exchange(self, data: bytes, *, seconds: float) -> Answer:
        """Send a request and return its answer. A caller that is cancelled closes the connection.

        Raises:
            NotSentError: no connection came about.
            LostError: the request went out and no answer came in time.
            NotHttpError: the answer was none.
        """
        async with self._slots:
            return await self._exchange(data, seconds, self._busy)

    async def poll(self, data: bytes, *, seconds: float) -> Answer:
        """The same for a long poll, which ``cut_polls`` ends with PollCutError."""
        return await self._exchange(data, seconds, self._polls)

    def cut_polls(self) -> None:
        """End all long polls, and those that are about to begin."""
        self._polls_are_cut = True
        for connection in list(self._polls):
            connection.fail(PollCutError())

    def close(self) -> None:
        """Close all connections, for good; exchanges under way are lost."""
        self._closed = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
        for connection in [*self._busy, *self._polls]:
            connection.fail(LostError(CLOSED))

    async def _exchange(self, data: bytes, seconds: float, among: set[Connection]) -> Answer:
        connection = self._take() or await self._connect()
        if self._polls_are_cut and among is self._polls:
            connection.abort()
            raise PollCutError
        among.add(connection)
        try:
            answer = await connection.exchange(data, seconds)
        except BaseException:
            connection.abort()
            raise
        finally:
            among.discard(connection)
        if connection.open:
            if len(self._idle) < MAX_CONNECTIONS:
                self._idle.append(connection)
            else:
                connection.abort()
        return answer

    def _take(self) -> Connection | None:
        """The connection used last, if it can still be used."""
        oldest = self._loop.time() - IDLE_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.open and connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> Connection:
        if self._closed:
            raise NotSentError(CLOSED)
        made: list[Connection] = []

        def factory() -> Connection:
            made.append(Connection(self._make_parser()))
            return made[-1]

        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._dial(factory)
        except TimeoutError as error:
            raise NotSentError(f"no connection within {CONNECT_SECONDS:g} s") from error
        except OSError as error:
            raise NotSentError(str(error) or type(error).__name__) from error
        except BaseException:
            for connection in made:
                connection.abort()
            raise
        (connection,) = made
        if connection.talks_to_itself:
            connection.abort()
            raise NotSentError("nobody listens there")
        return connection
