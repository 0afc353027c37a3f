"""Upstream: what the proxy forwards calls to; an engine in this process is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Upstream(Protocol):
    """Answers chat completion requests. ``agl.inference.base.Engine`` satisfies it."""

    @property
    def model(self) -> str:
        """The model name that requests use."""
        ...

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request in OpenAI's format, with vLLM's names for the exact ids where it knows them.

        Cancelling the coroutine gives the call up.

        Raises:
            InferenceError: with the status and body that the agent is to see.
        """
        ...
