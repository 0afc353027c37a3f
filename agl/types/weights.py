"""Weights on their way from a learner to an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWeights:
    """One version of the policy: tensors by parameter name when learner and engine share a process, a folder, or a
    name by which a service knows them.

    Args:
        policy_version: counted in weight updates.
        tensors: a state dict of a copy nobody changes any more (LoRA already merged), or None.
        path: a Hugging Face folder with the same weights, or None.
        remote: what the service that keeps them calls them (``tinker://...``), or None.
    """

    policy_version: int
    tensors: Mapping[str, Any] | None = None
    path: Path | None = None
    remote: str | None = None


@runtime_checkable
class KeptByService(Protocol):
    """A learner or an engine whose weights stay with a service: only parts of the same one understand each other."""

    @property
    def kept_as(self) -> str:
        """What the service calls the weights to begin with: the same text for two parts that fit."""
        ...
