"""The connections of one event loop to one server: an exchange takes the one used last, or opens another.

Finding an idle connection is O(1) however many there are, and an exchange is one write and one wake-up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import cast

from agl.http.address import Dial
from agl.http.bodies import Body
from agl.http.parsing import Answer, BadAnswerError, Parser

MAX_CONNECTIONS = 64
"""Of exchanges at once, by default; long polls, which mostly sleep, do not count. Also of idle ones that are kept."""
IDLE_SECONDS = 4.0
"""A connection unused for longer is not used again: servers end idle ones, uvicorn after 5 s."""
CONNECT_SECONDS = 10.0
CLOSED = "closed on this side"


class HttpError(Exception):
    """An exchange that came to nothing."""


class NotSentError(HttpError):
    """No connection came about, so nothing was sent."""


class LostError(HttpError):
    """The connection ended before the answer: whether the call was carried out is unknown.

    Args:
        cause: what happened.
        stale: an idle connection turned out to be dead, as after a restart of the server.
        late: nothing came in time.
    """

    def __init__(self, cause: str, *, stale: bool = False, late: bool = False) -> None:
        super().__init__(cause)
        self.stale = stale
        self.late = late


class NotHttpError(HttpError):
    """Something answered that does not speak HTTP."""


class PollCutError(HttpError):
    """This side ended a long poll, because it is closing."""


class Connection(asyncio.Protocol):
    """One connection: one exchange at a time."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._body: Body | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._seconds = self._heard_at = 0.0
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
        if self._waiting is None:
            self.abort()  # an answer to nothing: this is not a server to talk to
            return
        self._heard = True
        try:
            answer = self._parser.feed(data)
        except BadAnswerError as error:
            self.fail(NotHttpError(str(error)))
            return
        if self._body is not None:
            self._hand_on(self._body, answer)
        elif answer is not None:
            self._end(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; for some answers that is the end."""
        self.open = False
        self._transport = None
        answer = self._parser.end() if self._waiting is not None and exc is None else None
        if answer is None:
            cause = f"the connection broke ({exc or 'closed by the server'})"
            self.fail(LostError(cause, stale=self._used and not self._heard))
        elif self._body is not None:
            self._hand_on(self._body, answer)
        else:
            self._end(answer)

    def exchange(self, data: bytes, seconds: float) -> asyncio.Future[Answer]:
        """Send a request; the future has its answer, or LostError (also when none came in time) or NotHttpError."""
        waiting = self._waiting = self._loop.create_future()
        self._heard = False
        if self._transport is None:
            self.fail(LostError("the connection broke", stale=self._used))
            return waiting
        self._parser.begin()
        self._timer = self._loop.call_later(seconds, self._is_late, seconds)
        self._transport.write(data)
        return waiting

    def begin(self, data: bytes, seconds: float) -> tuple[asyncio.Future[Answer], Body]:
        """Send a request; the future has the answer's head, and the body comes piece by piece.

        Args:
            data: the request.
            seconds: the longest wait for the head, and for each piece that somebody waits for.
        """
        body = self._body = Body(self._pause)
        head = self.exchange(data, seconds)
        if self._timer is not None:
            self._timer.cancel()
            self._seconds, self._heard_at = seconds, self._loop.time()
            self._timer = self._loop.call_later(seconds, self._check_time)
        return head, body

    def fail(self, error: Exception) -> None:
        """End the exchange, and with it the connection."""
        waiting, body = self._waiting, self._body
        self._settle()
        self.abort()
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
        elif body is not None:
            body.end(error)

    def _is_late(self, seconds: float) -> None:
        self.fail(LostError(f"no answer within {seconds:.3g} s", late=True))

    def abort(self) -> None:
        """Close at once."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def _hand_on(self, body: Body, answer: Answer | None) -> None:
        """Give what has come of a streamed answer to its reader; ``answer`` is its end."""
        waiting = self._waiting
        self._heard_at = self._loop.time()
        if waiting is not None and not waiting.done():
            head = answer or self._parser.head
            if head is None:
                return
            waiting.set_result(head)
        if answer is None:
            body.feed(self._parser.take())
        else:
            self._end(answer)
            body.feed(answer.body)
            body.end()

    def _end(self, answer: Answer) -> None:
        waiting = self._waiting
        self._settle()
        self._used = True
        self.idle_since = self._loop.time()
        if not answer.keep_alive:
            self.abort()
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _check_time(self) -> None:
        """Give a stream up that has been waited for too long; asked once in a while and not with each piece."""
        body = self._body
        waited = self._loop.time() - self._heard_at
        if body is None:
            return
        if not body.is_awaited:
            waited = 0.0
        if waited >= self._seconds:
            self.fail(LostError(f"nothing came for {self._seconds:.3g} s", late=True))
        else:
            self._timer = self._loop.call_later(self._seconds - waited, self._check_time)

    def _pause(self, paused: bool) -> None:  # noqa: FBT001
        if self._transport is None:
            return
        if paused:
            self._transport.pause_reading()
        else:
            self._heard_at = self._loop.time()
            self._transport.resume_reading()

    def _settle(self) -> None:
        self._waiting = self._body = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Connections:
    """All connections of one event loop.

    Args:
        dial: connects.
        make_parser: makes the parser of a new connection.
        max_connections: exchanges beyond so many at once wait for one to end; None sets no limit.
        connect_seconds: the longest wait for a connection.
        closed: what exchanges are told after ``close``.
    """

    def __init__(
        self,
        dial: Dial,
        make_parser: Callable[[], Parser],
        *,
        max_connections: int | None = MAX_CONNECTIONS,
        connect_seconds: float = CONNECT_SECONDS,
        closed: str = CLOSED,
    ) -> None:
        self._dial = dial
        self._make_parser = make_parser
        self._connect_seconds = connect_seconds
        self._max_idle = max_connections or 4 * MAX_CONNECTIONS
        self._told_when_closed = closed
        self._loop = asyncio.get_running_loop()
        self._slots = None if max_connections is None else asyncio.Semaphore(max_connections)
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
        if self._slots is None:
            return await self._exchange(data, seconds, self._busy)
        async with self._slots:
            return await self._exchange(data, seconds, self._busy)

    async def poll(self, data: bytes, *, seconds: float) -> Answer:
        """The same for a long poll, which ``cut_polls`` ends with PollCutError."""
        return await self._exchange(data, seconds, self._polls)

    @asynccontextmanager
    async def stream(self, data: bytes, *, seconds: float) -> AsyncGenerator[tuple[Answer, Body]]:
        """Send a request; yields its answer's head and the body as it comes.

        Leaving before the body's end closes the connection at once.

        Args:
            data: the request.
            seconds: the longest wait for the head, and for each piece of the body.

        Raises:
            NotSentError: no connection came about.
            LostError: no answer, or no further piece, came in time.
            NotHttpError: the answer was none.
        """
        if self._slots is not None:
            await self._slots.acquire()
        try:
            connection = self._take() or await self._connect()
            self._busy.add(connection)
            body = None
            try:
                head, body = connection.begin(data, seconds)
                yield await head, body
            finally:
                self._busy.discard(connection)
                self._leave(connection, reusable=body is not None and body.is_read)
        finally:
            if self._slots is not None:
                self._slots.release()

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
            connection.fail(LostError(self._told_when_closed))

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
        self._leave(connection, reusable=True)
        return answer

    def _leave(self, connection: Connection, *, reusable: bool) -> None:
        """Keep a connection for later, or close it."""
        if connection.open and reusable and not self._closed and len(self._idle) < self._max_idle:
            self._idle.append(connection)
        else:
            connection.abort()

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
            raise NotSentError(self._told_when_closed)
        made: list[Connection] = []

        def factory() -> Connection:
            made.append(Connection(self._make_parser()))
            return made[-1]

        try:
            async with asyncio.timeout(self._connect_seconds):
                await self._dial(factory)
        except TimeoutError as error:
            raise NotSentError(f"no connection within {self._connect_seconds:g} s") from error
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
