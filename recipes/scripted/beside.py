"""BesideScripted: a policy's engine that also answers for a scripted model, under a name of its own.

So a policy that is trained and an optimizer model that needs no API key are at work in one process.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from agl.errors import ConfigError
from agl.inference.transformers import TransformersEngine
from agl.types import Policy

from .engine import ScriptedEngine


class BesideScripted(TransformersEngine):
    """The small engine, with a scripted model beside the policy. Further arguments are the engine's.

    Args:
        policy: which model, and in which precision and on which device.
        script: ``file.py:name`` of the function that answers for the scripted model.
        script_model: the name that requests for it use.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        script: Callable[..., Any],
        script_model: str = "optimizer",
        max_batch_size: int = 64,
        prefix_cache_bytes: int = 268_435_456,
        num_threads: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(
            policy,
            max_batch_size=max_batch_size,
            prefix_cache_bytes=prefix_cache_bytes,
            num_threads=num_threads,
            seed=seed,
        )
        if script_model == self.model:
            raise ConfigError(f"inference.script_model={script_model} is the policy's name; choose another")
        self._scripted = ScriptedEngine(script, model=script_model, seed=seed)

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a chat completion request of the policy's users, or of the scripted model's."""
        if request.get("model") == self._scripted.model:
            return await self._scripted.complete_chat(request)
        return await super().complete_chat(request)

    async def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """The same in chunks."""
        scripted = request.get("model") == self._scripted.model
        async for chunk in (self._scripted if scripted else super()).stream_chat(request):
            yield chunk
