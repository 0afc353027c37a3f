"""Scoped tokens: bearer tokens for agents, each of which the store and the proxy take for one attempt only.

Nothing is stored: a token carries its ids and their HMAC-SHA256 under the admin token, so every server process that
knows the admin token knows its scoped tokens, and a new admin token ends them all.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

import orjson

from agl.errors import ConfigError

_PREFIX = "agl1."
_PURPOSE = b"agl scoped token 1\0"


def require_sendable(token: str | None, setting: str) -> None:
    """Check that a token can travel in a header.

    Raises:
        ConfigError: it is empty, has spaces, or is not ASCII.
    """
    if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
        raise ConfigError(f"{setting}: ASCII text without spaces, or null for none")


def require_token(token: str | None, setting: str) -> None:
    """Check that a token can be a server's own.

    Raises:
        ConfigError: it cannot travel in a header, or looks like a scoped one.
    """
    require_sendable(token, setting)
    if token is not None and is_scoped(token):
        raise ConfigError(f"{setting}: {_PREFIX} begins the tokens of single attempts; take another one")


def scoped_token(secret: str, rollout_id: str, attempt_id: str) -> str:
    """Return the token that may touch this attempt; the same ids give the same token."""
    ids = _text(orjson.dumps([rollout_id, attempt_id]))
    return f"{_PREFIX}{ids}.{_text(_signature(secret, ids))}"


def is_scoped(token: str) -> bool:
    """Whether a token is made like a scoped one; who made it only ``scope_of`` tells."""
    return token.startswith(_PREFIX)


def scope_of(secret: str, token: str) -> tuple[str, str] | None:
    """Return the (rollout_id, attempt_id) that a token may touch, None when ``secret`` did not make it."""
    ids, _, signature = token.removeprefix(_PREFIX).partition(".")
    if not is_scoped(token) or not token.isascii():
        return None
    if not hmac.compare_digest(_text(_signature(secret, ids)), signature):
        return None
    rollout_id, attempt_id = orjson.loads(base64.urlsafe_b64decode(ids + "=" * (-len(ids) % 4)))
    return rollout_id, attempt_id


def _signature(secret: str, ids: str) -> bytes:
    return hmac.new(secret.encode("utf-8"), _PURPOSE + ids.encode("ascii"), hashlib.sha256).digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")
