"""Refusals: what the server answers itself, without asking the store."""

from __future__ import annotations

from agl.errors import StoreError


class RefusedError(StoreError):
    """The server does not carry out this request.

    Args:
        code: one of ``wire.CODES``.
        message: what is wrong, where, and what to do.
        closes: the connection ends with the answer, because the rest of the request is not read.
    """

    def __init__(self, code: str, message: str, *, closes: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.closes = closes


class ClientGoneError(Exception):
    """The client closed the connection; nobody is left to answer."""
