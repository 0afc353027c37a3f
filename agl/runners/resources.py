"""The resources of a rollout, as its agent gets them. Versions are immutable, so the last few are kept."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping

from agl.agents.base import MissingResourceError
from agl.errors import NotFoundError
from agl.runners.retry import when_available
from agl.store.base import ResourceBook
from agl.types import AttemptedRollout, NamedResources, ProxyLLM, Resource, Rollout

KEPT_VERSIONS = 8


class ResourceShelf:
    """Looks resources up in the store, once a version."""

    def __init__(self, store: ResourceBook) -> None:
        self._store = store
        self._kept: OrderedDict[str, NamedResources] = OrderedDict()
        self._lock = asyncio.Lock()

    async def resources_for(self, claim: AttemptedRollout) -> dict[str, Resource]:
        """Return what the attempt's agent is given by name, a ``ProxyLLM`` as the attempt's own ``LLM``.

        Raises:
            MissingResourceError: the rollout names resources that the store does not have.
        """
        named = await self.named_for(claim.rollout)
        return resolved(named.resources, claim.attempt.rollout_id, claim.attempt.attempt_id) if named else {}

    async def named_for(self, rollout: Rollout) -> NamedResources | None:
        """Return the resources of a rollout as the store has them, None where it has none."""
        resources_id = rollout.resources_id
        if resources_id is None:  # the claim pins the latest version, so there was none
            return None
        what = f"looking up the resources of rollout {rollout.rollout_id}"
        if resources_id in self._kept:
            return self._kept[resources_id]
        async with self._lock:
            if resources_id in self._kept:
                return self._kept[resources_id]
            try:
                named = await when_available(lambda: self._store.get_resources_by_id(resources_id), what=what)
            except NotFoundError as error:
                raise MissingResourceError(
                    f"rollout {rollout.rollout_id} asks for resources {resources_id!r}, which the store does not have"
                ) from error
            self._kept[resources_id] = named
            while len(self._kept) > KEPT_VERSIONS:
                self._kept.popitem(last=False)
            return named


def resolved(resources: Mapping[str, Resource], rollout_id: str, attempt_id: str) -> dict[str, Resource]:
    """Return the resources with every ``ProxyLLM`` as the ``LLM`` of this attempt."""
    return {
        name: value.for_attempt(rollout_id, attempt_id) if isinstance(value, ProxyLLM) else value
        for name, value in resources.items()
    }
