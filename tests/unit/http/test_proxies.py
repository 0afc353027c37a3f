"""The environment's proxy, and tunnels through it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from model_network import ModelNetwork

from agl.http.address import parts_of
from agl.http.client import HttpClient
from agl.http.connections import NotSentError
from agl.http.proxies import proxy_of, tunnel

MODEL = parts_of("https://model.test/v1")
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def client_of(url: str) -> HttpClient:
    return HttpClient(url, headers={}, answer_seconds=5.0, connect_seconds=1.0)


def test_without_a_variable_there_is_none() -> None:
    assert proxy_of(MODEL) is None


def test_the_variable_of_the_urls_scheme_names_it_and_its_password_is_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:s%20e@proxy.test:3128")
    found = proxy_of(MODEL)
    assert found is not None
    assert (found.host, found.port, found.authorization) == ("proxy.test", 3128, "Basic bWU6cyBl")
    assert "bWU6" not in repr(found)
    assert proxy_of(parts_of("http://model.test/v1")) is None


def test_exceptions_and_this_machine_are_reached_straight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", ".inner.test")
    assert proxy_of(MODEL) is not None
    assert proxy_of(parts_of("https://gpu.inner.test/v1")) is None
    assert proxy_of(parts_of("http://127.0.0.1:8000/v1")) is None
    assert proxy_of(parts_of("http://localhost:8000/v1")) is None


async def test_a_kind_that_is_not_supported_is_told_with_the_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://me:secret@proxy.test:1080")
    with pytest.raises(NotSentError, match=r"socks5://: only http://") as caught:
        await client_of("https://model.test/v1").post("/x", b"{}")
    assert "secret" not in str(caught.value)


async def test_plain_http_is_asked_of_the_proxy_by_the_whole_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://me:pw@proxy.test:3128")
    network = ModelNetwork([httpx.Response(200)])
    network.install(monkeypatch)
    await client_of("http://model.test/v1").post("/x", b"{}")
    (request,) = network.requests
    assert network.dialed == [("proxy.test", 3128)]
    assert network.targets == ["http://model.test/v1/x"]
    assert request.headers["host"] == "model.test"
    assert request.headers["proxy-authorization"] == "Basic bWU6cHc="


class Tunnelling(asyncio.Transport):
    """A proxy's end of a connection."""

    def __init__(self, protocol: asyncio.Protocol, answer: bytes) -> None:
        super().__init__()
        self.protocol, self.answer, self.written, self.aborted = protocol, answer, b"", False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)
        self.protocol.data_received(self.answer)

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 407 Proxy no\r\n\r\n"])
async def test_https_goes_through_a_tunnel_if_the_proxy_opens_one(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:pw@proxy.test:3128")
    made: list[Tunnelling] = []

    async def create_connection(
        loop: object, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[Tunnelling, asyncio.Protocol]:
        assert (host, port) == ("proxy.test", 3128)
        made.append(Tunnelling(factory(), answer))
        return made[0], made[0].protocol

    async def start_tls(
        loop: object, transport: object, protocol: object, context: object, *, server_hostname: str
    ) -> Any:
        assert server_hostname == "model.test"
        return Tunnelling(asyncio.Protocol(), b"")

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", create_connection)
    monkeypatch.setattr(asyncio.BaseEventLoop, "start_tls", start_tls)
    proxy = proxy_of(MODEL)
    assert proxy is not None
    dial = tunnel(MODEL, proxy, new_context=ssl.create_default_context)
    if b"407" in answer:
        with pytest.raises(OSError, match="does not let it through: 407 Proxy no"):
            await dial(asyncio.Protocol)
        assert made[0].aborted
    else:
        assert isinstance(await dial(asyncio.Protocol), Tunnelling)
    assert made[0].written == (
        b"CONNECT model.test:443 HTTP/1.1\r\nhost: model.test:443\r\nproxy-authorization: Basic bWU6cHc=\r\n\r\n"
    )
