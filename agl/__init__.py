"""agl trains and improves AI agents that already exist.

The pipeline, top to bottom:

    cli        commands: the only place that prints
    config     settings in, objects out (the only module that knows Hydra)
    trainer    composes everything below; what ``agl train`` builds
    launch     start, watch and stop the parts
    algorithms what to sample, how to give credit, when to update and publish
    evaluation tasks n times under given resources
    learners   samples -> new weights            inference   serves the policy
    adapters   spans -> trajectories -> samples
    runners    dequeue, execute one attempt      proxy       the recorded door to the model
    agents     the user's program
    tracing    OpenTelemetry in, spans out
    store      the queue and the record
    data       files -> tasks                    metrics     where numbers go
    types      what flows
    errors     what can go wrong, by what the caller can do

Public names are loaded at first use, so that ``import agl`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agl.adapters.trace import TracerTraceToTriplet
    from agl.agents.function import rollout
    from agl.agents.lit_agent import LitAgent
    from agl.algorithms.base import Algorithm
    from agl.algorithms.function import algo
    from agl.proxy import LLMProxy
    from agl.runners.hooks import Hook
    from agl.runners.runner import LitAgentRunner
    from agl.store.base import LightningStore
    from agl.store.client import LightningStoreClient
    from agl.store.mongo import MongoLightningStore
    from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
    from agl.tracing.emit import emit_exception, emit_message, emit_object, emit_reward
    from agl.tracing.operation import operation
    from agl.tracing.tracer import Tracer
    from agl.trainer import Trainer
    from agl.types import (
        LLM,
        Attempt,
        NamedResources,
        PromptTemplate,
        ProxyLLM,
        Rollout,
        RolloutConfig,
        Span,
        Weights,
    )

__version__ = "0.1.0"

_HOMES = {
    "LLM": "agl.types",
    "ProxyLLM": "agl.types",
    "PromptTemplate": "agl.types",
    "Weights": "agl.types",
    "NamedResources": "agl.types",
    "Rollout": "agl.types",
    "RolloutConfig": "agl.types",
    "Attempt": "agl.types",
    "Span": "agl.types",
    "Algorithm": "agl.algorithms.base",
    "InMemoryLightningStore": "agl.store.sqlite",
    "Hook": "agl.runners.hooks",
    "LLMProxy": "agl.proxy",
    "LightningStore": "agl.store.base",
    "LightningStoreClient": "agl.store.client",
    "LitAgent": "agl.agents.lit_agent",
    "LitAgentRunner": "agl.runners.runner",
    "MongoLightningStore": "agl.store.mongo",
    "SqliteLightningStore": "agl.store.sqlite",
    "TracerTraceToTriplet": "agl.adapters.trace",
    "Trainer": "agl.trainer",
    "Tracer": "agl.tracing.tracer",
    "algo": "agl.algorithms.function",
    "emit_exception": "agl.tracing.emit",
    "emit_message": "agl.tracing.emit",
    "emit_object": "agl.tracing.emit",
    "emit_reward": "agl.tracing.emit",
    "operation": "agl.tracing.operation",
    "rollout": "agl.agents.function",
}

__all__ = [
    "LLM",
    "Algorithm",
    "Attempt",
    "Hook",
    "InMemoryLightningStore",
    "LLMProxy",
    "LightningStore",
    "LightningStoreClient",
    "LitAgent",
    "LitAgentRunner",
    "MongoLightningStore",
    "NamedResources",
    "PromptTemplate",
    "ProxyLLM",
    "Rollout",
    "RolloutConfig",
    "Span",
    "SqliteLightningStore",
    "Tracer",
    "TracerTraceToTriplet",
    "Trainer",
    "Weights",
    "__version__",
    "algo",
    "emit_exception",
    "emit_message",
    "emit_object",
    "emit_reward",
    "operation",
    "rollout",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'agl' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
