"""The way out of a closed network: the HTTP proxy that the environment names, and tunnels through it.

``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` mean what they do for curl. This machine itself is never
reached through a proxy.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from agl.http.address import Address, Dial

_MAX_ANSWER_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A proxy of HTTP.

    Args:
        host: where it is.
        port: of it.
        authorization: the value of its own header, None for none.
    """

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)


def proxy_of(address: Address) -> Proxy | None:
    """Return the proxy through which the environment wants a server reached, None for none.

    Raises:
        OSError: it names something that is no proxy of HTTP.
    """
    if address.is_loopback or proxy_bypass(f"{address.host}:{address.port}"):
        return None
    named = getproxies()
    url = named.get("https" if address.tls else "http") or named.get("all")
    if not url:
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise OSError(
            f"the proxy for {address.host} is {parts.scheme}://: only http:// proxies are supported"
        )
    authorization = None
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + b64encode(user.encode()).decode()
    return Proxy(host=parts.hostname, port=parts.port or 80, authorization=authorization)


def tunnel(address: Address, proxy: Proxy, *, new_context: Callable[[], ssl.SSLContext]) -> Dial:
    """Return what connects to a server of https through a proxy (CONNECT, RFC 9110, section 9.3.6)."""

    async def dial(factory: Callable[[], asyncio.Protocol]) -> object:
        loop = asyncio.get_running_loop()
        transport, opening = await loop.create_connection(_Opening, proxy.host, proxy.port)
        try:
            host = f"[{address.host}]" if ":" in address.host else address.host
            where = f"{host}:{address.port}"
            lines = [f"CONNECT {where} HTTP/1.1", f"host: {where}"]
            if proxy.authorization is not None:
                lines.append(f"proxy-authorization: {proxy.authorization}")
            transport.write("".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1"))
            await opening.opened
            protocol = factory()
            secured = await loop.start_tls(transport, protocol, new_context(), server_hostname=address.host)
        except BaseException:
            transport.abort()
            raise
        if secured is None:
            raise ConnectionResetError("the connection broke")
        protocol.connection_made(secured)
        return secured

    return dial


class _Opening(asyncio.Protocol):
    """Waits for a proxy's answer."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answer = b""

    def data_received(self, data: bytes) -> None:
        """A part of the answer."""
        self._answer += data
        if self.opened.done() or (b"\r\n\r\n" not in self._answer and len(self._answer) < _MAX_ANSWER_BYTES):
            return
        status = self._answer.split(b"\r\n", 1)[0].split(b" ", 2)
        if len(status) > 1 and status[0].startswith(b"HTTP/1.") and status[1].startswith(b"2"):
            self.opened.set_result(None)
        else:
            told = b" ".join(status[1:]).decode("latin-1")[:100]
            self.opened.set_exception(OSError(f"the proxy does not let it through: {told}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The proxy hung up."""
        if not self.opened.done():
            self.opened.set_exception(ConnectionResetError(f"the proxy closed the connection ({exc})"))
