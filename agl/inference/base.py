"""Engine: what holds the policy's weights and answers calls.

The proxy forwards to an engine as to any OpenAI-compatible server, so an engine speaks that wire format, with
vLLM's names for the exact ids: ``prompt_token_ids`` on the answer, ``token_ids`` and ``logprobs`` on each choice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

from agl.types.weights import PolicyWeights


@runtime_checkable
class Engine(AbstractAsyncContextManager["Engine"], Protocol):
    """Serves one policy. Entering loads the model; leaving frees it and fails the calls in flight."""

    @property
    def model(self) -> str:
        """The model name that requests use."""
        ...

    @property
    def policy_version(self) -> int:
        """How often the weights were swapped; 0 for the weights it started with."""
        ...

    @property
    def trainable(self) -> bool:
        """Whether ``load_weights`` works and answers carry exact ids."""
        ...

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a chat completion request (OpenAI's body, non-streaming).

        The answer is OpenAI's ``chat.completion`` object with, where the engine knows them, ``prompt_token_ids``
        (list of int), ``choices[i].token_ids`` (the sampled ids, the end token included),
        ``choices[i].logprobs.content[t].logprob`` (of the sampled token under the request's temperature) and
        ``policy_version`` (the weights that sampled all of it).

        Raises:
            InferenceError: with the status and body the client is to see.
        """
        ...

    def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Answer a chat completion request in chunks, each as soon as it is sampled.

        A chunk is OpenAI's ``chat.completion.chunk`` with, where the engine knows them, ``prompt_token_ids`` on the
        first, ``choices[i].token_ids`` and ``choices[i].logprobs.content`` of what the chunk sampled (also where that
        adds no text yet), and ``policy_version``. The last has no choices and the ``usage``. Put together, the chunks
        are what ``complete_chat`` answers. Closing the generator gives the call up.

        Raises:
            InferenceError: from the first ``__anext__`` with the status and body the client is to see, from a later
                one when the call fails half-way.
        """
        ...

    async def load_weights(self, weights: PolicyWeights) -> None:
        """Serve these weights from the next batch on; calls under way finish on the old ones."""
        ...
