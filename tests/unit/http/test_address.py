"""A server's URL in parts."""

from __future__ import annotations

import pytest

from agl.http.address import parts_of


def test_a_url_is_taken_apart_once() -> None:
    address = parts_of("https://Model.Example/a b/v1/")
    assert (address.host, address.port, address.authority) == ("model.example", 443, "model.example")
    assert (address.tls, address.prefix, address.url) == (True, "/a%20b/v1", "https://Model.Example/a b/v1")


def test_an_address_of_version_6_keeps_its_brackets_in_the_host_header() -> None:
    address = parts_of("http://[::1]:5/v1")
    assert (address.host, address.port, address.authority) == ("::1", 5, "[::1]:5")
    assert address.is_loopback


@pytest.mark.parametrize("url", ["ftp://h", "h:80", "http://", "http://h:99999", "http://ü"])
def test_what_is_no_address_is_told(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|[Pp]ort|ASCII"):
        parts_of(url)
