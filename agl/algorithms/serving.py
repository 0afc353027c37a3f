"""The policy as agents reach it: weights in the engine, an address in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agl.inference.base import Engine
from agl.store.base import LightningStore
from agl.types import PolicyWeights, ProxyLLM


class ServedPolicy:
    """Swaps the engine's weights and publishes resources that point to them.

    Args:
        engine: holds the weights.
        store: where resources versions are published.
        proxy_url: the root of the proxy in front of the engine.
        run_id: whose resources these are.
        new_id: makes a short unique text; resources of an earlier process of the same run point to a proxy that is
            gone.
        resource_name: the name under which agents get the model.
        api_key: what agents send to the proxy.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        store: LightningStore,
        proxy_url: str,
        run_id: str,
        new_id: Callable[[], str],
        resource_name: str = "llm",
        api_key: str = "none",
    ) -> None:
        self._engine, self._store, self._proxy_url, self._run_id = engine, store, proxy_url, run_id
        self._session, self._name, self._api_key = new_id(), resource_name, api_key

    @property
    def policy_version(self) -> int:
        """The version that the engine serves."""
        return self._engine.policy_version

    @property
    def trainable(self) -> bool:
        """Whether the engine takes new weights and gives exact ids."""
        return self._engine.trainable

    async def load(self, weights: PolicyWeights) -> None:
        """Serve these weights."""
        await self._engine.load_weights(weights)

    async def resources_id(self, purpose: str, sampling: Mapping[str, Any]) -> str:
        """Publish the served version with these forced sampling parameters; return the id of the resources.

        ``purpose`` tells apart versions of the same weights with other parameters (``train``, ``val-greedy``).
        """
        version = self._engine.policy_version
        llm = ProxyLLM(
            base_url=self._proxy_url,
            model=self._engine.model,
            api_key=self._api_key,
            sampling=dict(sampling),
            policy_version=version,
        )
        named = await self._store.add_resources(
            {self._name: llm},
            run_id=self._run_id,
            resources_id=f"{self._run_id}-{purpose}-v{version}-{self._session}",
        )
        return named.resources_id
