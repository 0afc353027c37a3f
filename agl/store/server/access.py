"""Access: who may ask what of this server - tokens, read-only mode, and pages of other sites."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from agl.http.listening import is_loopback
from agl.store.server.operation import Headers, Operation
from agl.store.server.refusal import RefusedError
from agl.types.tokens import scope_of

_OTHER_SITES = (b"cross-site", b"same-site")


class Gate:
    """Lets requests in.

    Without a token anybody on this machine may ask, but no web page: a page of another site could otherwise use the
    visitor's browser, by a name of its own that resolves to this machine (DNS rebinding) or by a plain form.

    Args:
        token: what admins send; scoped tokens are made of it. None asks for nothing.
        read_only: refuse what changes the store.
        hosts: names of this server beside the loopback ones and the address that it listens on.
    """

    def __init__(self, *, token: str | None, read_only: bool, hosts: Collection[str]) -> None:
        self._token = token
        self._authorization = None if token is None else b"Bearer " + token.encode("ascii")
        self._read_only = read_only
        self._hosts = frozenset(host.lower() for host in hosts)

    def admit(
        self, operation: Operation, headers: Headers, server: tuple[str, Any] | None
    ) -> tuple[str, str] | None:
        """Return what the caller may touch: the (rollout_id, attempt_id) of its scoped token, None for everything.

        Raises:
            RefusedError: the caller may not ask this.
        """
        attempt = None
        if self._authorization is not None:
            if operation.needs_token:
                attempt = self._attempt(operation, headers.get(b"authorization", b""))
        else:
            self._require_own_host(headers, server)
            if operation.writes:
                _require_own_page(headers)
        if operation.writes and self._read_only:
            raise RefusedError("forbidden", "this server only reads: it was started read-only")
        return attempt

    def _attempt(self, operation: Operation, given: bytes) -> tuple[str, str] | None:
        assert self._token is not None
        assert self._authorization is not None
        if hmac.compare_digest(given, self._authorization):
            return None
        kind, _, token = given.decode("latin-1").partition(" ")
        if kind.lower() != "bearer":
            message = "this store asks for a token: send the header `Authorization: Bearer TOKEN`"
            raise RefusedError("unauthorized", message)
        token = token.strip()
        if hmac.compare_digest(token.encode("latin-1"), self._authorization[7:]):
            return None
        attempt = scope_of(self._token, token)
        if attempt is None:
            raise RefusedError("unauthorized", "the token is not one of this store")
        if operation.access is None:
            raise RefusedError("forbidden", scope_message(attempt))
        return attempt

    def _require_own_host(self, headers: Headers, server: tuple[str, Any] | None) -> None:
        given = headers.get(b"host")
        if given is None:  # browsers always send it
            return
        host = _name(given.decode("latin-1"))
        if host not in self._hosts and not is_loopback(host) and (server is None or host != server[0]):
            message = f"{host[:80]!r} is not a name of this server: use 127.0.0.1, or start it with a token"
            raise RefusedError("forbidden", message)


def scope_message(attempt: tuple[str, str]) -> str:
    """Return why a scoped token is refused."""
    return f"this token may only touch attempt {attempt[1]} of rollout {attempt[0]}"


def _require_own_page(headers: Headers) -> None:
    """Refuse what a browser sends for a page of another site."""
    origin = headers.get(b"origin")
    foreign = (
        origin is not None
        and urlsplit(origin.decode("latin-1")).netloc.lower()
        != headers.get(b"host", b"").decode("latin-1").lower()
    )
    if foreign or headers.get(b"sec-fetch-site") in _OTHER_SITES:
        raise RefusedError(
            "forbidden", "a page of another site may not write here; start the store with a token"
        )


def _name(host: str) -> str:
    """The host without its port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()
