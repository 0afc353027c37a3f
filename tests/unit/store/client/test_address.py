"""A store's URL in parts."""

from __future__ import annotations

import pytest

from agl.errors import ConfigError
from agl.store.client.address import address_from


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "tls", "prefix"),
    [
        ("http://127.0.0.1:4747", "127.0.0.1", 4747, "127.0.0.1:4747", False, ""),
        ("http://127.0.0.1:4747/", "127.0.0.1", 4747, "127.0.0.1:4747", False, ""),
        ("http://store", "store", 80, "store", False, ""),
        ("https://Store.Example/agl/", "store.example", 443, "store.example", True, "/agl"),
        ("http://[::1]:5", "::1", 5, "[::1]:5", False, ""),
        ("http://h/a b", "h", 80, "h", False, "/a%20b"),
    ],
)
def test_a_url_is_taken_apart(url: str, host: str, port: int, authority: str, tls: bool, prefix: str) -> None:
    address = address_from(url)
    assert (address.host, address.port, address.authority) == (host, port, authority)
    assert (address.tls, address.prefix) == (tls, prefix)


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:4747",
        "store",
        "ftp://store",
        "http://",
        "http://h:x",
        "http://h:99999",
        "http://h?a=1",
        "http://h#f",
        "http://ä",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"store\.url"):
        address_from(url)


@pytest.mark.parametrize("url", ["http://user@h", "http://user:hunter2@h", "http://:hunter2@h"])
def test_a_url_with_a_secret_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigError, match=r"store\.token") as refusal:
        address_from(url)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:1", True),
        ("http://localhost", True),
        ("http://[::1]", True),
        ("http://10.0.0.1", False),
        ("http://store", False),
    ],
)
def test_loopback_is_told_apart(url: str, local: bool) -> None:
    assert address_from(url).is_loopback is local
