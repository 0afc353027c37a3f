"""The policy as agents reach it: weights in the engine, an address in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from agl.inference.base import Engine
from agl.store.base import LightningStore
from agl.types import LLM, PolicyWeights, ProxyLLM, Resource


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
        paused: holds the engine's calls while its weights change, and waits for those under way.
        resources: what agents get beside the model, such as prompt templates.
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
        paused: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
        resources: Mapping[str, Resource] | None = None,
    ) -> None:
        self._paused = paused
        self._engine, self._store, self._proxy_url, self._run_id = engine, store, proxy_url, run_id
        self._session, self._name, self._api_key = new_id(), resource_name, api_key
        self._resources = dict(resources or {})

    @property
    def resource_name(self) -> str:
        """The name under which agents get the policy."""
        return self._name

    @property
    def policy_version(self) -> int:
        """The version that the engine serves."""
        return self._engine.policy_version

    @property
    def trainable(self) -> bool:
        """Whether the engine takes new weights and gives exact ids."""
        return self._engine.trainable

    async def load(self, weights: PolicyWeights) -> None:
        """Serve these weights to every call from now on; those that come meanwhile wait."""
        async with self._paused():
            await self._engine.load_weights(weights)

    def of_stage(self, stage: str, resources: Mapping[str, Resource]) -> ServedPolicy:
        """Return the same policy for a stage of the run, in which agents get these resources beside it."""
        session = f"{stage}-{self._session}"
        return ServedPolicy(
            engine=self._engine,
            store=self._store,
            proxy_url=self._proxy_url,
            run_id=self._run_id,
            new_id=lambda: session,
            resource_name=self._name,
            api_key=self._api_key,
            paused=self._paused,
            resources=resources,
        )

    async def resources_id(
        self,
        purpose: str,
        sampling: Mapping[str, Any],
        *,
        resources: Mapping[str, Resource] | None = None,
        model: str | None = None,
    ) -> str:
        """Publish the served version with these forced sampling parameters; return the id of the resources.

        Args:
            purpose: tells apart versions of the same weights with other parameters (``train``, ``val-greedy``).
            sampling: request parameters of every call.
            resources: stand in for those of the same name that agents get otherwise, such as another prompt.
            model: another than the policy, by a name that the proxy knows.
        """
        version = self._engine.policy_version
        others = {**self._resources, **(resources or {})}
        named = await self._store.add_resources(
            {**others, self._name: self.llm(sampling, model=model)},
            run_id=self._run_id,
            resources_id=f"{self._run_id}-{purpose}-v{version}-{self._session}",
        )
        return named.resources_id

    def llm_of_attempt(
        self, rollout_id: str, attempt_id: str, *, model: str | None = None, sampling: Mapping[str, Any]
    ) -> LLM:
        """Return the address at which an attempt of the algorithm's own reaches a model behind the proxy.

        Args:
            rollout_id: of the attempt.
            attempt_id: of the attempt.
            model: any that the proxy's endpoints have; None is the policy.
            sampling: request parameters that the caller sends itself.
        """
        return self.llm(sampling, model=model).for_attempt(rollout_id, attempt_id)

    async def publish(self, purpose: str, resources: Mapping[str, Resource]) -> str:
        """Publish resources of an algorithm's own making; return their id.

        Models behind the proxy get the proxy's present address and policy version; nothing else is changed or added.
        """
        present = {name: self._present(value) for name, value in resources.items()}
        named = await self._store.add_resources(
            present, run_id=self._run_id, resources_id=f"{self._run_id}-{purpose}-{self._session}"
        )
        return named.resources_id

    def _present(self, resource: Resource) -> Resource:
        if not isinstance(resource, ProxyLLM):
            return resource
        return self.llm(resource.sampling, model=resource.model)

    def llm(self, sampling: Mapping[str, Any], *, model: str | None = None) -> ProxyLLM:
        """Return the policy, or another model behind the proxy, as resources name it."""
        return ProxyLLM(
            base_url=self._proxy_url,
            model=model or self._engine.model,
            api_key=self._api_key,
            sampling=dict(sampling),
            policy_version=self._engine.policy_version,
        )
