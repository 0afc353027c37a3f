"""Requests as bytes."""

from __future__ import annotations

import pytest

import agl
from agl.errors import ConfigError
from agl.store.client.address import address_from
from agl.store.client.heads import Heads


def heads(url: str = "http://127.0.0.1:4747/x", token: str | None = "s3cret") -> Heads:
    return Heads(address_from(url), token=token)


def test_a_request_is_its_line_its_headers_and_its_body() -> None:
    made = heads()
    made.name_the_store("the-store")
    assert made.request("POST", "/v1/rollouts?a=b", b"[1]") == (
        b"POST /x/v1/rollouts?a=b HTTP/1.1\r\n"
        b"host: 127.0.0.1:4747\r\n"
        b"user-agent: agl/" + agl.__version__.encode() + b"\r\n"
        b"authorization: Bearer s3cret\r\n"
        b"x-agl-store: the-store\r\n"
        b"content-type: application/json\r\n"
        b"content-length: 3\r\n"
        b"\r\n"
        b"[1]"
    )


def test_a_request_without_a_body_says_so_unless_it_is_a_get() -> None:
    made = heads(token=None)
    assert made.request("GET", "/v1/runs").endswith(b"\r\n\r\n")
    assert b"content" not in made.request("GET", "/v1/runs")
    assert made.request("POST", "/v1/rollouts/r/cancel").endswith(b"content-length: 0\r\n\r\n")


def test_only_named_requests_are_for_one_store() -> None:
    made = heads()
    assert b"x-agl-store" not in made.request("GET", "/v1/health")
    made.name_the_store("the-store")
    assert b"x-agl-store" not in made.request("GET", "/v1/health", named=False)
    made.name_the_store("another")
    assert made.request("GET", "/v1/health").count(b"x-agl-store: another") == 1


def test_large_bodies_are_compressed_on_their_way_to_another_machine_only() -> None:
    large, small = b"x" * 16384, b"x" * 16383
    remote, local = heads("http://10.0.0.7:4747"), heads()
    assert remote.compresses(large)
    assert not remote.compresses(small)
    assert not local.compresses(large)
    assert b"content-encoding: gzip\r\n" in remote.request("POST", "/v1/spans", b"gz", packed=True)
    assert b"accept-encoding: gzip\r\n" in remote.request("GET", "/v1/spans")
    assert b"accept-encoding" not in local.request("GET", "/v1/spans")


@pytest.mark.parametrize("token", ["", "a b", "a\r\nx: y", "schlüssel"])
def test_a_token_that_no_header_carries_is_refused_without_repeating_it(token: str) -> None:
    with pytest.raises(ConfigError, match=r"store\.token") as refusal:
        heads(token=token)
    assert not token or token not in str(refusal.value)


def test_what_is_wrong_with_the_token_depends_on_there_being_one() -> None:
    assert "check AGL_STORE_TOKEN" in heads().what_is_wrong_with_the_token()
    assert "set AGL_STORE_TOKEN" in heads(token=None).what_is_wrong_with_the_token()
