"""StandaloneProxy: opened and closed with its store. Serving itself is tested with real processes."""

from contextlib import asynccontextmanager

import pytest

from agl.errors import StoreUnavailableError
from agl.launch.proxy import ServedProxy, StandaloneProxy
from agl.proxy import ProxyServer
from agl.store.sqlite import InMemoryLightningStore


class FakeProxy:
    """Serves without a socket."""

    def __init__(self):
        self.served = []

    @asynccontextmanager
    async def serving(self, store, upstream):
        self.served.append((store, upstream))
        yield ProxyServer(url="http://proxy:1")
        self.served.clear()


async def test_it_serves_its_open_store_without_an_engine():
    proxy, store = FakeProxy(), InMemoryLightningStore()
    async with StandaloneProxy(store=store, proxy=proxy).serving() as served:
        assert proxy.served == [(store, None)]
        identity = (await store.health())["identity"]
        assert served == ServedProxy(url="http://proxy:1", records="memory", identity=identity, models=())
    assert proxy.served == []
    with pytest.raises(StoreUnavailableError):
        await store.statistics()
