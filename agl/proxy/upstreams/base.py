"""Server: one server that answers calls, whatever it speaks; and how its failures are told."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from agl.errors import ConfigError, InferenceError
from agl.proxy.upstream import CallContext

MASK = "***"
_MAX_SHOWN = 500  # characters of a server's error text in a message


class UpstreamError(InferenceError):
    """A server refused or failed a call.

    Args:
        message: what went wrong.
        status: the HTTP status that the agent sees.
        body: the server's own error body.
        retry: whether the same call may succeed later or elsewhere.
        sick: whether it speaks against the server, and not against the call.
        retry_after: seconds that the server wants to be left alone.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        body: object = None,
        retry: bool = False,
        sick: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, status=status, body=body)
        self.retry = retry
        self.sick = sick
        self.retry_after = retry_after


class Server(Protocol):
    """One server. Made by the routing, which calls ``aclose`` when the last call has ended."""

    def takes(self, context: CallContext) -> bool:
        """Whether the server can answer a call that the client worded so."""
        ...

    async def complete(self, request: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        """Answer a canonical request.

        Raises:
            InferenceError: an UpstreamError where it can be told whether to retry.
        """
        ...

    def stream(self, request: Mapping[str, Any], context: CallContext) -> AsyncGenerator[dict[str, Any]]:
        """Answer a canonical request in chunks.

        Raises:
            InferenceError: the same.
        """
        ...

    async def embed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer an embeddings request.

        Raises:
            InferenceError: the same; a 404 where the server has none.
        """
        ...

    async def probe(self) -> bool | None:
        """Return whether the server answers; None where that cannot be asked without a call."""
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


@runtime_checkable
class CountingServer(Protocol):
    """A server that can count a prompt's tokens without sampling."""

    async def count_tokens(self, request: Mapping[str, Any], context: CallContext) -> int | None:
        """Return how many tokens the prompt of a canonical request has; None where it cannot after all.

        Raises:
            InferenceError: as ``Server.complete`` does.
        """
        ...


def checked_url(url: str, setting: str) -> str:
    """Return a base URL without its last slash.

    Raises:
        ConfigError: it is no http(s) URL, or holds a password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{setting}: {error}") from error
    if parts.username or parts.password:
        raise ConfigError(
            f"{setting}: no user or password in the URL; name the key's variable in api_key_env"
        )
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or parts.fragment
        or port == 0
    ):
        raise ConfigError(f"{setting}={url}: an http(s) URL such as https://api.openai.com/v1")
    if not parts.hostname.isascii():
        raise ConfigError(f"{setting}={url}: write the host in ASCII (xn--...)")
    return url.rstrip("/")


def key_from_environment(variable: str | None, setting: str) -> str | None:
    """Return the API key in an environment variable of this process, None where none is named.

    Raises:
        ConfigError: the variable is not set, or what is in it is no key.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"{setting}={variable}: this environment variable of the proxy is not set")
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"{setting}={variable}: the variable's value is not a key (ASCII text)")
    return key


def is_retried(status: int) -> bool:
    """Whether a refusal with this status may be one for now only, as the providers' own clients take it."""
    return status in (408, 409, 429) or is_sick(status)


def is_sick(status: int) -> bool:
    """Whether a refusal with this status speaks against the server; 501 and 505 say what it cannot do, and is well."""
    return status >= 500 and status not in (501, 505)


def masked(text: str, key: str | None) -> str:
    """Return a text without the key: some servers repeat it in their errors."""
    return text.replace(key, MASK) if key else text


def shown(text: str) -> str:
    """Return a server's text as far as a message repeats it."""
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + " ..."
