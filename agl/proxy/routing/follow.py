"""Which model endpoints the store asks for: those of its newest resources version that has any."""

from __future__ import annotations

from collections.abc import Mapping

from agl.store.base import ResourceBook
from agl.types import ModelEndpoint, NamedResources, ResourcesQuery

_PAGE = 200


class EndpointFeed:
    """Reads the store's endpoints as versions come. One cheap call where nothing is new."""

    def __init__(self, store: ResourceBook) -> None:
        self._store = store
        self._seen = 0

    async def changes(self) -> NamedResources | None:
        """Return the newest version with endpoints among those that came since the last call, None for none.

        Raises:
            StoreError: the store cannot be asked; the next call looks again.
        """
        latest = await self._store.get_latest_resources()
        if latest is None or latest.version <= self._seen:
            return None
        found = latest if endpoints_of(latest) else None
        if found is None and latest.version > self._seen + 1:
            found = await self._search(latest.version)
        self._seen = latest.version
        return found

    async def _search(self, below: int) -> NamedResources | None:
        cursor: str | None = None
        while True:
            page = await self._store.list_resources(ResourcesQuery(order="desc", limit=_PAGE, cursor=cursor))
            for named in page.items:
                if named.version <= self._seen:
                    return None
                if named.version < below and endpoints_of(named):
                    return named
            cursor = page.next_cursor
            if cursor is None:
                return None


def endpoints_of(named: NamedResources) -> Mapping[str, ModelEndpoint]:
    """Return the version's model endpoints by name."""
    return {
        name: resource for name, resource in named.resources.items() if isinstance(resource, ModelEndpoint)
    }
