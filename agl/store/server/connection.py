"""Connections: limits that uvicorn does not have, so that slow or stuck clients cannot exhaust the server.

A connection ends when its client does not send a request's head in time, sends an endless one, or does not read what
it asked for; and one too many is turned away.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import orjson

from agl.store import wire

_MAX_HEAD_BYTES = 64 * 1024  # what h11 and most servers allow


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one server grants its connections."""

    max_connections: int
    head_seconds: float = 30.0
    """Longest time from a request's first byte (or the connection's begin) to the end of its headers."""
    unread_seconds: float = 60.0
    """Longest time in which a client reads nothing of a full buffer."""


def limited_protocol(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol, on httptools where that is installed, with these limits."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Base
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol as Base

    class Connection(Base):
        """A connection under limits."""

        _head_timer: asyncio.TimerHandle | None = None
        _unread_timer: asyncio.TimerHandle | None = None
        _head_bytes = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.max_connections:
                self._turn_away(b"503 Service Unavailable", "unavailable", "too many connections; try again")
            else:
                self._head_timer = self.loop.call_later(limits.head_seconds, self._head_is_late)

        def data_received(self, data: bytes) -> None:
            cycle = self.cycle
            super().data_received(data)
            if self.cycle is not cycle:  # this data had the end of a head
                self._stop_head_timer()
            elif cycle is None or cycle.response_complete:
                self._head_bytes += len(data)
                if self._head_bytes > _MAX_HEAD_BYTES:
                    message = f"the request's head is larger than {_MAX_HEAD_BYTES} bytes"
                    self._turn_away(b"431 Request Header Fields Too Large", "too_large", message)
                elif self._head_timer is None:
                    self._head_timer = self.loop.call_later(limits.head_seconds, self._head_is_late)

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._unread_timer is None:
                self._unread_timer = self.loop.call_later(limits.unread_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop_unread_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_head_timer()
            self._stop_unread_timer()
            super().connection_lost(exc)

        def _stop_head_timer(self) -> None:
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
            if not self.transport.is_closing():
                self._turn_away(
                    b"408 Request Timeout", "timeout", "the request's head did not arrive in time"
                )

        def _turn_away(self, status: bytes, code: str, message: str) -> None:
            body = orjson.dumps(wire.error_body(code, message))
            head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(head % (status, len(body)) + body)
            self.transport.close()

    return Connection
