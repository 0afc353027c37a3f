"""Answers of the OTLP endpoint, in the encoding of the request: ExportTraceServiceResponse, or google.rpc.Status.

Encoded here, field by field: they are two tiny messages, and Status is in no package that agl needs otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

import orjson

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
MEDIA_TYPES = frozenset((PROTOBUF, JSON))
_MAX_REASONS = 10
_MAX_REASON_CHARACTERS = 300
_BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
_RPC_CODES: Mapping[int, int] = MappingProxyType(
    {400: 3, 401: 16, 403: 7, 404: 5, 409: 9, 413: 8, 415: 3, 422: 3, 429: 8, 503: 14}
)
"""google.rpc.Code by HTTP status; what is not here is INTERNAL."""
_INTERNAL = 13


def media_type(content_type: str) -> str | None:
    """Return the encoding that a Content-Type header names, None when OTLP has none such."""
    named = content_type.partition(";")[0].strip().lower()
    return named if named in MEDIA_TYPES else None


def success(encoding: str, rejected: Counter[str]) -> bytes:
    """Return an ExportTraceServiceResponse; ``rejected`` counts spans by reason."""
    number, message = rejected.total(), rejection_message(rejected)
    if encoding == JSON:
        partial = {"rejectedSpans": str(number), "errorMessage": message}
        return orjson.dumps({"partialSuccess": partial} if number else {})
    return _bytes_field(1, _varint_field(1, number) + _bytes_field(2, message.encode())) if number else b""


def failure(encoding: str, status: int, message: str) -> bytes:
    """Return a google.rpc.Status; for malformed data (400) with the BadRequest that the specification asks for."""
    code = _RPC_CODES.get(status, _INTERNAL)
    if encoding == JSON:
        details = [{"@type": _BAD_REQUEST, "fieldViolations": [{"field": "body", "description": message}]}]
        body = {"code": code, "message": message}
        return orjson.dumps({**body, "details": details} if status == 400 else body)
    text = message.encode()
    body = _varint_field(1, code) + _bytes_field(2, text)
    if status != 400:
        return body
    violation = _bytes_field(1, b"body") + _bytes_field(2, text)
    return body + _bytes_field(
        3, _bytes_field(1, _BAD_REQUEST.encode()) + _bytes_field(2, _bytes_field(1, violation))
    )


def rejection_message(rejected: Counter[str]) -> str:
    """Return the reasons for people, most frequent first."""
    shown = [
        f"{count} {'span' if count == 1 else 'spans'}: {reason[:_MAX_REASON_CHARACTERS]}"
        for reason, count in rejected.most_common(_MAX_REASONS)
    ]
    left = len(rejected) - len(shown)
    return "; ".join([*shown, f"and {left} more reasons"] if left else shown)


def _varint_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _bytes_field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
