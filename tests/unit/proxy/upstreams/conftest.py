"""A model server in memory, and our end of the connections to it."""

from __future__ import annotations

import pytest
from model_network import ModelNetwork

from agl.proxy.upstreams.http import HttpServer

URL = "http://model.test/v1"


@pytest.fixture
def model_server(monkeypatch: pytest.MonkeyPatch) -> ModelNetwork:
    network = ModelNetwork()
    network.install(monkeypatch)
    return network


@pytest.fixture
async def http(model_server: ModelNetwork):
    server = HttpServer(
        URL,
        headers={"authorization": "Bearer s3cret"},
        key="s3cret",
        timeout_seconds=5.0,
        connect_seconds=1.0,
    )
    yield server
    await server.aclose()
