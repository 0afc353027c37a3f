"""Listening: what every server of ours needs to serve inside a running event loop."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Generator
from functools import lru_cache

import uvicorn

from agl.errors import ConfigError

BACKLOG = 4096
KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep an idle connection, so that it is the client who closes it."""


class EmbeddedServer(uvicorn.Server):
    """uvicorn inside somebody else's process: signals belong to the caller."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the signal handlers as they are."""
        yield


@contextlib.contextmanager
def listening(host: str, port: int, *, who: str, settings: str = "") -> Generator[socket.socket]:
    """A listening socket: connections are queued from now on, so nobody has to wait for the server's first moment.

    Args:
        host: a name or address of this machine.
        port: 0 takes a free one.
        who: listens, for the message: ``the store``.
        settings: what stands before ``host`` and ``port`` in the settings' names: ``proxy.``.

    Raises:
        ConfigError: the address is not this machine's, or the port is taken.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"{settings}host={host}: {error}") from error
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            reason = "another program listens there" if taken else error.strerror
            message = f"{who} cannot listen on {host}:{port}: {reason}; set {settings}port=0 for any free one"
            raise ConfigError(message) from error
        yield listener


def url_of(host: str, listener: socket.socket) -> str:
    """Return the root under which clients reach the listener; a wildcard address is named by the machine's name."""
    port = listener.getsockname()[1]
    if host in ("0.0.0.0", "::", ""):
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Return whether a name or address is this machine's own."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
