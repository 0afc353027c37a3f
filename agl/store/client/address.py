"""Where a store answers: its URL taken apart once, so that no call has to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import quote, urlsplit

from agl.errors import ConfigError

Dial = Callable[[Callable[[], asyncio.Protocol]], Awaitable[object]]
"""Connects, and gives the connection to the protocol that the factory makes. OSError when it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A store's URL in parts."""

    url: str
    """As people write it, without a slash at the end."""
    host: str
    port: int
    authority: str
    """The ``host`` header."""
    tls: bool
    prefix: str
    """The path before ``/v1``, quoted; empty where the store has a host to itself."""

    @property
    def is_loopback(self) -> bool:
        """Whether requests stay on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def address_from(url: str) -> Address:
    """Return the parts of a URL.

    Raises:
        ConfigError: it is no http(s) URL, or it carries a user, a password, parameters or a fragment.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"store.url={url}: {error}") from error
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "store.url: no user or password in the URL; the store's secret goes into store.token"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"store.url={url}: the address of an `agl store` such as http://127.0.0.1:4747")
    tls = parts.scheme == "https"
    host = parts.hostname
    shown = f"[{host}]" if ":" in host else host
    try:
        shown.encode("ascii")
    except UnicodeEncodeError as error:
        raise ConfigError(f"store.url={url}: write the host in ASCII (xn--...)") from error
    return Address(
        url=url.rstrip("/"),
        host=host,
        port=port or (443 if tls else 80),
        authority=shown if port is None else f"{shown}:{port}",
        tls=tls,
        prefix=quote(parts.path.rstrip("/"), safe="/%"),
    )


def dialer(address: Address) -> Dial:
    """Return what connects to the address in the running event loop, never through a proxy."""
    contexts: list[ssl.SSLContext] = []

    async def dial(factory: Callable[[], asyncio.Protocol]) -> object:
        if address.tls and not contexts:
            contexts.append(ssl.create_default_context())
        return await asyncio.get_running_loop().create_connection(
            factory, address.host, address.port, ssl=contexts[0] if contexts else None
        )

    return dial
