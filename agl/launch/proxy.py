"""StandaloneProxy: the proxy as a process of its own. What ``agl proxy`` builds."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agl.proxy import LLMProxy
from agl.store.base import LightningStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedProxy:
    """A proxy that serves.

    Args:
        url: its root.
        records: the store's location.
        identity: of the store.
        models: that calls can name; those of endpoints in the store's resources may follow.
    """

    url: str
    records: str
    identity: str
    models: tuple[str, ...]


class StandaloneProxy:
    """A proxy without an engine beside it: calls go to endpoints, of its settings or of the store's resources.

    Args:
        store: where attempts are looked up and calls recorded.
        proxy: where it listens and what it lets in.
    """

    def __init__(self, *, store: LightningStore, proxy: LLMProxy) -> None:
        self.store = store
        self.proxy = proxy

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[ServedProxy]:
        """Open the store and serve until the block ends.

        Raises:
            ConfigError: the address cannot be listened on, or an endpoint's servers cannot be spoken to.
            StoreError: the store cannot be opened.
        """
        async with self.store as store, self.proxy.serving(store, None) as server:
            yield ServedProxy(
                url=server.url,
                records=store.location,
                identity=(await store.health())["identity"],
                models=tuple(server.router.models if server.router is not None else ()),
            )
