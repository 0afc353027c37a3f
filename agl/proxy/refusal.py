"""Refusals: requests that the proxy answers itself, in the error shape that OpenAI's clients read."""

from __future__ import annotations

from typing import Any

import orjson

from agl.errors import AglError


class CallRefusedError(AglError):
    """The proxy does not forward this request.

    Args:
        message: what is wrong, where, and what to do.
        status: the HTTP status.
        code: a short name of the cause for programs.
        param: the field of the request that is wrong.
        retry: what ``x-should-retry`` tells OpenAI's clients, which otherwise repeat a 409; None leaves it to them.
    """

    def __init__(
        self, message: str, *, status: int, code: str, param: str | None = None, retry: bool | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry = retry

    @property
    def error(self) -> dict[str, Any]:
        """OpenAI's error object, which the other dialects read and reword."""
        return error_object(str(self), status=self.status, code=self.code, param=self.param)


def error_body(message: str, *, status: int, code: str | None = None, param: str | None = None) -> bytes:
    """Return OpenAI's error object as JSON."""
    return orjson.dumps(error_object(message, status=status, code=code, param=param))


def error_object(
    message: str, *, status: int, code: str | None = None, param: str | None = None
) -> dict[str, Any]:
    """Return OpenAI's error object; ``type`` follows from the status."""
    error: dict[str, Any] = {"message": message, "type": _error_type(status), "param": param, "code": code}
    return {"error": error}


def _error_type(status: int) -> str:
    if status == 401:
        return "authentication_error"
    if status == 404:
        return "not_found_error"
    if status == 409:
        return "conflict_error"
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"
