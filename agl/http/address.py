"""Where a server answers: its URL taken apart once, so that no call has to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote, urlsplit

Dial = Callable[[Callable[[], asyncio.Protocol]], Awaitable[object]]
"""Connects, and gives the connection to the protocol that the factory makes. OSError when it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server's URL in parts."""

    url: str
    """As people write it, without a slash at the end."""
    host: str
    port: int
    authority: str
    """The ``host`` header."""
    tls: bool
    prefix: str
    """The path before a request's own, quoted; empty where the server has a host to itself."""

    @property
    def is_loopback(self) -> bool:
        """Whether requests stay on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parts_of(url: str) -> Address:
    """Return the parts of a URL. Users, passwords, parameters and fragments are for the caller to refuse.

    Raises:
        ValueError: it is no http(s) URL, or its host is not written in ASCII.
    """
    parts = urlsplit(url)
    port = parts.port
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("no http(s) URL")
    tls = parts.scheme == "https"
    host = parts.hostname
    shown = f"[{host}]" if ":" in host else host
    try:
        shown.encode("ascii")
    except UnicodeEncodeError as error:
        raise ValueError("write the host in ASCII (xn--...)") from error
    return Address(
        url=url.rstrip("/"),
        host=host,
        port=port or (443 if tls else 80),
        authority=shown if port is None else f"{shown}:{port}",
        tls=tls,
        prefix=quote(parts.path.rstrip("/"), safe="/%"),
    )


def provider_context() -> ssl.SSLContext:
    """Return the rules of TLS towards servers of others: the system's certificates, or certifi's where it has none.

    Slim containers have none. ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` name others, as everywhere.
    """
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    has_own = paths.cafile or (paths.capath and any(Path(paths.capath).iterdir()))
    if not has_own and find_spec("certifi"):
        context.load_verify_locations(import_module("certifi").where())
    return context


def dialer(
    address: Address, *, new_context: Callable[[], ssl.SSLContext] = ssl.create_default_context
) -> Dial:
    """Return what connects to the address in the running event loop, never through a proxy.

    Args:
        address: the server.
        new_context: makes the rules of TLS, with the first connection that needs them.
    """
    contexts: list[ssl.SSLContext] = []

    async def dial(factory: Callable[[], asyncio.Protocol]) -> object:
        if address.tls and not contexts:
            contexts.append(new_context())
        return await asyncio.get_running_loop().create_connection(
            factory, address.host, address.port, ssl=contexts[0] if contexts else None
        )

    return dial
