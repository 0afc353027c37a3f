"""A store's URL, checked."""

from __future__ import annotations

from urllib.parse import urlsplit

from agl.errors import ConfigError
from agl.http.address import Address, parts_of


def address_from(url: str) -> Address:
    """Return the parts of a URL.

    Raises:
        ConfigError: it is no http(s) URL, or it carries a user, a password, parameters or a fragment.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"store.url={url}: {error}") from error
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "store.url: no user or password in the URL; the store's secret goes into store.token"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"store.url={url}: the address of an `agl store` such as http://127.0.0.1:4747")
    try:
        return parts_of(url)
    except ValueError as error:
        raise ConfigError(f"store.url={url}: {error}") from error
