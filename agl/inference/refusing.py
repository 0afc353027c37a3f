"""RefusingEngine: an engine without a model, for replays that find every answer in the record."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Any, Self

from agl.errors import InferenceError
from agl.types import PolicyWeights

CONFLICT = 409
"""A status that clients do not try again."""


class RefusingEngine:
    """Refuses every call, and counts them.

    Args:
        model: the name that requests use.
        policy_version: of the weights that answered when the record was made.
        why: what the refusal says.
    """

    def __init__(self, *, model: str, policy_version: int = 0, why: str) -> None:
        self._model, self._policy_version, self._why = model, policy_version, why
        self.num_calls = 0

    @property
    def model(self) -> str:
        """The model name that requests use."""
        return self._model

    @property
    def policy_version(self) -> int:
        """Of the weights that answered when the record was made."""
        return self._policy_version

    @property
    def trainable(self) -> bool:
        """False: there is nothing to train."""
        return False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse the request.

        Raises:
            InferenceError: always.
        """
        del request
        self.num_calls += 1
        raise InferenceError(self._why, status=CONFLICT)

    async def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Refuse the request.

        Raises:
            InferenceError: always.
        """
        yield await self.complete_chat(request)

    async def load_weights(self, weights: PolicyWeights) -> None:
        """Refuse the weights.

        Raises:
            InferenceError: always.
        """
        raise InferenceError(f"{self._why}: no weights can be loaded, not even {weights}", status=CONFLICT)
