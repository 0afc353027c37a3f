"""Requests to one base URL."""

from __future__ import annotations

import gzip
from types import SimpleNamespace

import httpx
import pytest
from model_network import CUT, ModelNetwork, Pieces

from agl.http.client import MAX_REFUSAL_BYTES, HttpClient
from agl.http.connections import LostError, NotHttpError, NotSentError


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> ModelNetwork:
    network = ModelNetwork()
    network.install(monkeypatch)
    return network


def client_of(url: str = "https://model.test/a/v1") -> HttpClient:
    return HttpClient(url, headers={"x-key": "k"}, answer_seconds=5.0, connect_seconds=1.0)


async def test_a_post_is_json_with_its_headers_under_the_base_url(network: ModelNetwork) -> None:
    network.answers = [httpx.Response(201, content=b"{}", headers={"X-Y": "z"})]
    answer = await client_of().post("/chat", b'{"a":1}', headers={"x-b": "é"})
    (request,) = network.requests
    assert (request.method, str(request.url)) == ("POST", "https://model.test/a/v1/chat")
    assert request.content == b'{"a":1}'
    assert request.headers["content-type"] == "application/json"
    assert (request.headers["x-key"], request.headers["x-b"]) == ("k", "é")
    assert (answer.status, answer.body, answer.headers[b"x-y"]) == (201, b"{}", b"z")


async def test_a_get_has_no_body(network: ModelNetwork) -> None:
    network.answers = [httpx.Response(200, content=b"[]")]
    assert (await client_of().get("/models", seconds=5.0)).body == b"[]"
    assert network.requests[0].method == "GET"


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "\0"])
async def test_a_header_that_would_be_two_is_not_sent(network: ModelNetwork, value: str) -> None:
    with pytest.raises(ValueError, match="header x-b"):
        await client_of().post("/x", b"{}", headers={"x-b": value})
    assert network.requests == []


async def test_a_dead_kept_connection_is_replaced_and_a_new_one_that_breaks_is_told(
    network: ModelNetwork,
) -> None:
    client = client_of()
    network.answers = [httpx.Response(200), CUT, httpx.Response(200), CUT]
    assert [(await client.post("/x", b"{}")).status for _ in range(2)] == [200, 200]
    client.close()
    with pytest.raises(LostError):
        await client.post("/x", b"{}")


async def test_who_cannot_be_reached_was_sent_nothing(network: ModelNetwork) -> None:
    network.answers = [OSError("refused")]
    with pytest.raises(NotSentError, match="refused"):
        await client_of().post("/x", b"{}")


async def test_a_packed_stream_is_unpacked_as_it_comes(
    network: ModelNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(b"data: 1\n\ndata: 2\n\n")
    network.answers = [Pieces(tuple(packed[i : i + 1] for i in range(len(packed))), packing="gzip")]
    parts: list[bytes] = []
    async with client_of().posted("/x", b"{}") as streamed:
        while piece := await streamed.read():
            parts.append(piece)
    assert b"".join(parts) == b"data: 1\n\ndata: 2\n\n"


async def test_a_packing_that_nobody_asked_for_is_told(network: ModelNetwork) -> None:
    network.answers = [SimpleNamespace(status_code=200, headers={"content-encoding": "br"}, content=b"x")]
    with pytest.raises(NotHttpError, match="packed as br"):
        await client_of().post("/x", b"{}")
    network.answers = [Pieces((b"x",), packing="br")]
    with pytest.raises(NotHttpError, match="packed as br"):
        async with client_of().posted("/x", b"{}"):
            pass


async def test_of_a_streamed_refusal_only_the_beginning_is_read(network: ModelNetwork) -> None:
    network.answers = [Pieces((b"x" * MAX_REFUSAL_BYTES,) * 100, status=500)]
    async with client_of().posted("/x", b"{}") as streamed:
        assert streamed.status == 500
        assert MAX_REFUSAL_BYTES <= len(await streamed.beginning()) < 3 * MAX_REFUSAL_BYTES
    assert network.num_closed == 1
