"""ScriptedEngine: answers each call as a function of the recipe says, in OpenAI's wire format.

What the function may look at is the request alone, so that answers can be repeated: the same request, and the same
engine seed, get the same answer.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import Any, Self

from agl.errors import ConfigError, InferenceError
from agl.types import PolicyWeights

CHARACTERS_PER_TOKEN = 4
"""About what tokenizers of English text take; the usage is an estimate."""

Message = Mapping[str, Any]
Script = Callable[[Mapping[str, Any], str], Message]
"""Takes the request and a text that seeds its choices; returns the answering message of the assistant."""


class ScriptedEngine:
    """Serves one scripted model.

    Args:
        script: ``file.py:name`` of the function that answers.
        model: the name that requests use.
        seed: of every choice the script makes.
        seconds_per_call: how long an answer takes.
    """

    def __init__(
        self,
        script: Callable[..., Any],
        *,
        model: str = "scripted",
        seed: int = 0,
        seconds_per_call: float = 0.0,
    ) -> None:
        if seconds_per_call < 0:
            raise ConfigError(f"inference.seconds_per_call={seconds_per_call} must not be negative")
        self._script, self._model, self._seed, self._seconds = script, model, seed, seconds_per_call

    @property
    def model(self) -> str:
        """The name that requests use."""
        return self._model

    @property
    def policy_version(self) -> int:
        """0: there are no weights to swap."""
        return 0

    @property
    def trainable(self) -> bool:
        """False: there are no weights."""
        return False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a chat completion request.

        Raises:
            InferenceError: 404, another model is asked for.
        """
        if request.get("model") not in (None, self._model):
            raise InferenceError(
                f"the model {request['model']!r} does not exist; this engine serves {self._model!r}",
                status=404,
            )
        await asyncio.sleep(self._seconds)
        warm = float(request.get("temperature") or 0.0) > 0
        message = dict(self._script(request, f"{self._seed}/{request.get('seed') if warm else 0}"))
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        limit = request.get("max_completion_tokens") or request.get("max_tokens")
        text = message.get("content") or ""
        if limit is not None and num_tokens(text) > limit:
            message, reason = {"content": text[: int(limit) * CHARACTERS_PER_TOKEN]}, "length"
        return self._worded(request, {"role": "assistant", "content": None, **message}, reason)

    async def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Answer in two chunks: the message, then its end with the usage."""
        answer = await self.complete_chat(request)
        (choice,) = answer["choices"]
        delta = dict(choice["message"])
        if delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(delta["tool_calls"])]
        head = {**answer, "object": "chat.completion.chunk", "usage": None}
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": choice["finish_reason"]}]}
        yield {**head, "choices": [], "usage": answer["usage"]}

    async def load_weights(self, weights: PolicyWeights) -> None:
        """Refuse.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"inference: a scripted model has no weights, so it cannot serve version {weights.policy_version};"
            " train with inference=transformers, or choose an algorithm that moves no weights"
        )

    def _worded(self, request: Mapping[str, Any], message: Mapping[str, Any], reason: str) -> dict[str, Any]:
        asked, answered = json.dumps(request.get("messages")), json.dumps(message)
        prompt, completion = num_tokens(asked), num_tokens(answered)
        return {
            "id": f"chatcmpl-{hashlib.sha256((asked + answered).encode()).hexdigest()[:24]}",
            "object": "chat.completion",
            "created": 0,
            "model": self._model,
            "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            },
        }


def num_tokens(text: str) -> int:
    """Return about how many tokens a text has."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)
