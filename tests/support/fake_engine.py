"""An engine of tests that only counts its weights."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Any, Self

from answer_chunks import chunks_from_answer

from agl.types import PolicyWeights


class CountingEngine:
    """Takes weights and answers nothing; agents of these tests are scripted."""

    def __init__(self, *, trainable: bool = True) -> None:
        self.model, self.policy_version, self.trainable = "policy", 0, trainable

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError(f"scripted agents make no calls: {request}")

    async def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        for chunk in chunks_from_answer(await self.complete_chat(request)):
            yield chunk

    async def load_weights(self, weights: PolicyWeights) -> None:
        self.policy_version = weights.policy_version
