"""Errors in Anthropic's shape: ``{"type": "error", "error": {"type", "message", "details"?}}``.

Source: https://docs.claude.com/en/api/errors
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from agl.errors import InferenceError
from agl.proxy.refusal import CallRefusedError

Json = dict[str, Any]

_TYPE_OF_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def object_or_empty(value: object) -> Json:
    """Return a JSON object, an empty one for anything else."""
    return cast("Json", value) if isinstance(value, dict) else {}


def objects_in(value: object) -> list[Json]:
    """Return the JSON objects in a list, none for anything else."""
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Json", each) for each in listed if isinstance(each, dict)]


def refused(message: str, param: str) -> CallRefusedError:
    """Return the refusal of a request with a wrong field; the message begins with its place, as Anthropic's do."""
    return CallRefusedError(f"{param}: {message}", status=400, code="invalid_value", param=param)


def unsupported(message: str, param: str) -> CallRefusedError:
    """Return the refusal of what only Anthropic's own servers can do."""
    return CallRefusedError(f"{param}: {message}", status=400, code="unsupported_value", param=param)


def error_object(message: str, *, status: int, code: str, body: object = None) -> dict[str, Any]:
    """Return the error for a client; an upstream's error in the same shape is returned as it is."""
    told = object_or_empty(body)
    inner = object_or_empty(told.get("error")) or told
    if told.get("type") == "error" and isinstance(inner.get("type"), str):
        return told
    if isinstance(inner.get("message"), str):
        message = inner["message"]
    if isinstance(inner.get("code"), str):
        code = inner["code"]
    kind = _TYPE_OF_STATUS.get(status, "invalid_request_error" if status < 500 else "api_error")
    error: dict[str, Any] = {"type": kind, "message": message}
    if code and not code.isdigit():  # a status is no cause
        error["details"] = {"error_code": code}  # where Anthropic's clients look for the cause's name
    return {"type": "error", "error": error}


def error_from_event(data: Mapping[str, Any]) -> InferenceError:
    """Return a stream's ``error`` event as the error that the same failure is before a stream."""
    inner = object_or_empty(data.get("error"))
    kind = str(inner.get("type") or "api_error")
    status = next((status for status, known in _TYPE_OF_STATUS.items() if known == kind), 500)
    message = f"the provider's stream ended with {kind}: {inner.get('message') or 'no message'}"
    return InferenceError(message, status=status, body=dict(data))
