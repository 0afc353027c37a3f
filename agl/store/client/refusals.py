"""Answers that are no success, read: the store's own, a gateway's in front of it, somebody else's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import orjson

from agl.http.parsing import Answer

TOO_MANY = 429
BUSY = frozenset((TOO_MANY, 502, 503, 504))
"""Statuses after which an idempotent call is tried again: those of ``wire.RETRIED``, and a gateway's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a call was not carried out."""

    code: str | None
    """Of ``wire.CODES``; None where the answer is not a store's."""
    message: str


def refusal_in(answer: Answer) -> Refusal:
    """Return the refusal that an answer holds."""
    error = _object(_object(_json(answer.body)).get("error"))
    code, message = error.get("code"), error.get("message")
    if isinstance(code, str) and isinstance(message, str):
        return Refusal(code=code, message=message)
    return Refusal(code=None, message=f"HTTP {answer.status}")


def identity_in(answer: Answer) -> str | None:
    """Return the identity in an answer of ``/v1/health``, None where there is none."""
    if answer.status != 200:
        return None
    identity = _object(_json(answer.body)).get("identity")
    usable = isinstance(identity, str) and identity.isascii() and identity.isprintable()
    return identity if usable else None


def retry_after(answer: Answer) -> float:
    """Return the seconds that the server asks to wait (RFC 9110, 10.2.3), 0 for none or a date."""
    text = answer.headers.get(b"retry-after", b"")
    return float(text) if text.isdigit() else 0.0


def _json(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
