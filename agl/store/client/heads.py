"""Requests as bytes: a head that is made once, a target and a body."""

from __future__ import annotations

import agl
from agl.http.address import Address
from agl.store import wire
from agl.types.tokens import require_sendable

GZIP_BYTES = 16 * 1024
"""Bodies from this size on are compressed, except over loopback. Level 1 takes 7 ms a megabyte of spans, unpacking
3 more, and a quarter is left: that pays below some 600 Mbit/s. On one machine it never does; there answers are plain.
"""


class Heads:
    """Makes the bytes of requests to one store.

    Args:
        address: where it answers.
        token: the bearer token, or None.

    Raises:
        ConfigError: a token that no header can carry.
    """

    def __init__(self, address: Address, *, token: str | None) -> None:
        require_sendable(token, "store.token")
        self._prefix = address.prefix
        self._compress = not address.is_loopback
        self._has_token = token is not None
        lines = [f"host: {address.authority}", f"user-agent: agl/{agl.__version__}"]
        if token is not None:
            lines.append(f"authorization: Bearer {token}")
        if self._compress:
            lines.append("accept-encoding: gzip")
        self._nameless = self._named = "".join(f"{line}\r\n" for line in lines)

    def name_the_store(self, identity: str) -> None:
        """From now on, send the identity of the store that is meant."""
        self._named = f"{self._nameless}{wire.IDENTITY_HEADER}: {identity}\r\n"

    def what_is_wrong_with_the_token(self) -> str:
        """Return what a refused token means, for the end of a sentence."""
        return (
            "does not take the token: check AGL_STORE_TOKEN, or store.token"
            if self._has_token
            else "wants a token: set AGL_STORE_TOKEN, or store.token"
        )

    def compresses(self, body: bytes) -> bool:
        """Return whether a body is to be compressed."""
        return self._compress and len(body) >= GZIP_BYTES

    def request(
        self, method: str, target: str, body: bytes = b"", *, named: bool = True, packed: bool = False
    ) -> bytes:
        """Return a whole request.

        Args:
            method: of HTTP.
            target: path and parameters.
            body: JSON, or nothing.
            named: for the store with the known identity only.
            packed: the body is gzip of the JSON.
        """
        head = f"{method} {self._prefix}{target} HTTP/1.1\r\n{self._named if named else self._nameless}"
        if not body:
            length = "\r\n" if method == "GET" else "content-length: 0\r\n\r\n"
            return (head + length).encode("ascii")
        kind = "content-type: application/json\r\n"
        if packed:
            kind += "content-encoding: gzip\r\n"
        return f"{head}{kind}content-length: {len(body)}\r\n\r\n".encode("ascii") + body
