"""Where a MongoDB store is, for people: checked settings, and a name without secrets."""

from __future__ import annotations

import re

from agl.errors import ConfigError

_SCHEMES = ("mongodb://", "mongodb+srv://")
_HOSTS = re.compile(r"[\w.,:\[\]%-]+")
_DATABASE = re.compile(r"[^/\\. \"$*<>:|?\x00]{1,63}")
_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,60}")


def check_settings(url: str, *, database: str, prefix: str, timeout_seconds: float) -> None:
    """Raise ConfigError for a setting that can never work; no message shows the URL, which may hold a password."""
    if not url.startswith(_SCHEMES):
        raise ConfigError(
            "store.url is not a MongoDB URL: write mongodb://HOST:27017 or mongodb+srv://HOST, "
            "with USER:PASSWORD@ in front of the host where the server asks for it"
        )
    if _DATABASE.fullmatch(database) is None:
        raise ConfigError(
            f"store.database is {database!r}: a database's name has 1 to 63 characters, without "
            'spaces and / \\ . " $ * < > : | ?'
        )
    if _PREFIX.fullmatch(prefix) is None:
        raise ConfigError(
            f"store.prefix is {prefix!r}: the names of collections begin with it, so it may have letters, "
            "digits, _ and -, 60 at most"
        )
    if not timeout_seconds > 0:
        raise ConfigError(f"store.timeout_seconds is {timeout_seconds}: it must be positive")


def location_of(url: str, *, database: str, prefix: str) -> str:
    """Return the URL with the namespace and without user, password and options."""
    scheme, _, rest = url.partition("://")
    hosts = rest.rpartition("@")[2].partition("/")[0].partition("?")[0]
    if _HOSTS.fullmatch(hosts) is None:
        hosts = "..."  # a password with an @ or / that is not quoted: rather nothing than a part of it
    return f"{scheme}://{hosts}/{database}" + (f" ({prefix}*)" if prefix else "")
