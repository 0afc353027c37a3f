"""Served connections: limits that uvicorn does not have, so that slow or stuck clients cannot exhaust a server.

A connection ends when its client does not send a request's head in time, sends an endless one, or does not read what
it asked for; and one too many is turned away.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from dataclasses import dataclass
from typing import Any, cast

import orjson
import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.server import ServerState

log = logging.getLogger(__name__)

OWN_STATE = "agl.connection"
"""The key of ASGI's ``scope["state"]`` under which an application finds its request's connection."""
_OWN_FILES = 256  # descriptors that are no connections: databases, readers, libraries
_MAX_HEAD_BYTES = 64 * 1024  # what h11 and most servers allow
_MAX_JOINED_BYTES = 64 * 1024
_ANSWER = (
    b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What a server grants its connections."""

    max_connections: int
    head_seconds: float = 30.0
    """Longest time from a request's first byte, or from the connection's begin, to the end of its headers."""
    unread_seconds: float = 60.0
    """Longest time in which a client reads nothing of a full buffer."""


class Connection(asyncio.Protocol):
    """One connection: hands all that happens to uvicorn's own protocol, and watches its limits."""

    def __init__(
        self,
        limits: ConnectionLimits,
        *,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        protocol: Any = AutoHTTPProtocol
        state = app_state | {OWN_STATE: self}
        self._http = protocol(config=config, server_state=server_state, app_state=state, _loop=_loop)
        self._limits = limits
        self._num_connections = server_state.connections.__len__
        self._loop = _loop or asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", None)
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._lost: asyncio.Future[None] | None = None
        self._is_lost = False

    @property
    def lost(self) -> asyncio.Future[None]:
        """Done when the client is gone. All requests of the connection share it: nobody may cancel it."""
        if self._lost is None:
            self._lost = self._loop.create_future()
            if self._is_lost:
                self._lost.set_result(None)
        return self._lost

    @property
    def has_whole_request(self) -> bool:
        """Whether all of the requests that have begun has come."""
        request = self._http.cycle
        return request is not None and not request.more_body

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or turn the client away."""
        self._transport = JoinedWrites(cast("asyncio.Transport", transport), self._loop)
        self._http.connection_made(self._transport)
        if self._num_connections() > self._limits.max_connections:
            self._turn_away(b"503 Service Unavailable", "unavailable", "too many connections; try again")
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        """Hand data on; count what belongs to a request's head."""
        request = self._http.cycle
        self._http.data_received(data)
        if self._http.cycle is not request:  # the data held the end of a head
            self._stop_awaiting_head()
        elif request is None or request.response_complete:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES:
                message = f"the request's head is larger than {_MAX_HEAD_BYTES} bytes"
                self._turn_away(b"431 Request Header Fields Too Large", "too_large", message)
            elif self._head_timer is None:
                self._await_head()

    def eof_received(self) -> None:
        """Hand it on."""
        self._http.eof_received()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._http.pause_writing()
        if self._unread_timer is None:
            self._unread_timer = self._loop.call_later(self._limits.unread_seconds, self._transport.abort)

    def resume_writing(self) -> None:
        """The client reads."""
        self._http.resume_writing()
        self._stop_unread_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_awaiting_head()
        self._stop_unread_timer()
        self._http.connection_lost(exc)
        self._is_lost = True
        if self._lost is not None:
            self._lost.set_result(None)

    def _await_head(self) -> None:
        self._head_timer = self._loop.call_later(self._limits.head_seconds, self._head_is_late)

    def _stop_awaiting_head(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        self._turn_away(b"408 Request Timeout", "timeout", "the request's head did not arrive in time")

    def _turn_away(self, status: bytes, code: str, message: str) -> None:
        if not self._transport.is_closing():
            body = orjson.dumps({"error": {"code": code, "message": message}})
            self._transport.write(_ANSWER % (status, len(body), body))
            self._transport.close()


class JoinedWrites(asyncio.Transport):
    """A transport that sends together what is written before the event loop turns.

    uvicorn writes an answer's head and its body apart: two system calls here, two packets, two wake-ups of the client.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._call_soon = loop.call_soon
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send it soon, or at once where it is long: then the transport must see how slowly its client reads."""
        if not self._parts:
            self._call_soon(self._flush)
        self._parts.append(bytes(data))
        self._size += len(data)
        if self._size > _MAX_JOINED_BYTES:
            self._flush()

    def close(self) -> None:
        """Send what is left and close."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._parts.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the transport knows of its socket."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Take no more data."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take data again."""
        self._transport.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand data to another protocol."""
        self._transport.set_protocol(protocol)

    def _flush(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        if parts:
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))


def raised_file_limit(max_connections: int) -> int:
    """Let this process open a file for each connection; return how many connections its hard limit leaves."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max_connections + _OWN_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return max_connections
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        log.info("the system allows %d open files: %d connections at most", allowed, allowed - _OWN_FILES)
    return max(allowed - _OWN_FILES, 1)
