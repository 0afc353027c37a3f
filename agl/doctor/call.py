"""A call through the proxy: whether it is answered, and recorded with the token ids and logprobs that RL needs."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from agl.adapters.triplets import calls_of_attempt
from agl.doctor.findings import Finding, failure, fine
from agl.evaluation.rollouts import spans_of_rollout
from agl.inference.base import Engine
from agl.proxy import LLMProxy
from agl.store.sqlite import InMemoryLightningStore
from agl.types import PolicyWeights, ProxyLLM, RolloutRequest

QUESTION = "Say one word."
FEW_TOKENS = 8


class EchoEngine:
    """Stands in for a model: answers one word with made-up ids, at once."""

    model, policy_version, trainable = "echo", 0, False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``word`` with two ids."""
        del request
        tokens: list[dict[str, Any]] = [{"token": text, "logprob": -0.5} for text in ("word", "")]
        return {
            "id": "chatcmpl-doctor",
            "object": "chat.completion",
            "created": 0,
            "model": self.model,
            "prompt_token_ids": [1, 2, 3],
            "policy_version": 0,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "word"},
                    "finish_reason": "stop",
                    "token_ids": [4, 5],
                    "logprobs": {"content": tokens},
                }
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        }

    async def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Answer nothing: nobody streams here."""
        if request:
            return
        yield {}

    async def load_weights(self, weights: PolicyWeights) -> None:
        """Take no weights."""
        del weights


async def call(
    proxy: LLMProxy, engine: Engine | None, *, model: str | None = None, needs_ids: bool = False
) -> list[Finding]:
    """Start the engine and the proxy, make one call as an agent would, and look at its record.

    Args:
        proxy: built, not started.
        engine: answers; None leaves it to the proxy's endpoints.
        model: what the call names; None is the engine's.
        needs_ids: whether weights are to be trained from such calls.
    """
    begin = time.perf_counter()
    named = model or (engine.model if engine is not None else "")
    if engine is None:
        return await _call(proxy, None, model=named, needs_ids=needs_ids, begin=begin)
    async with engine:
        return await _call(proxy, engine, model=named, needs_ids=needs_ids, begin=begin)


async def _call(
    proxy: LLMProxy, engine: Engine | None, *, model: str, needs_ids: bool, begin: float
) -> list[Finding]:
    async with InMemoryLightningStore() as store, proxy.serving(store, engine) as server:
        attempted = await store.start_rollout(RolloutRequest(task=QUESTION))
        rollout_id = attempted.rollout.rollout_id
        llm = ProxyLLM(base_url=server.url, model=model, api_key=server.api_key)
        door = llm.for_attempt(rollout_id, attempted.attempt.attempt_id)
        ready = time.perf_counter()
        body = {
            "model": model,
            "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": FEW_TOKENS,
        }
        async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
            answer = await client.post(
                f"{door.base_url}/chat/completions",
                json=body,
                headers={"authorization": f"Bearer {door.api_key}"},
            )
        took_ms = (time.perf_counter() - ready) * 1e3
        if answer.status_code != 200:
            detail = f"the call to {model} is answered with {answer.status_code}: {_message(answer)}"
            return [
                failure("call", detail, "see inference and proxy in the settings, and the model server's log")
            ]
        calls = calls_of_attempt(await spans_of_rollout(store, rollout_id))
    words = f"{model} answers through the proxy in {took_ms:.0f} ms ({ready - begin:.1f} s to start)"
    if calls.triplets:
        return [fine("call", f"{words}, recorded with token ids and logprobs")]
    cause = ", ".join(calls.dropped) or "no call is on record"
    detail = f"{words}, recorded without exact ids ({cause})"
    fix = "take inference=transformers, or a server that gives ids and logprobs (vLLM) with"
    fix += " inference.ask_for_token_ids=true"
    if needs_ids:
        return [failure("call", f"{detail}: there is nothing to train weights on", fix)]
    return [fine("call", f"{detail}: enough for prompts and SFT on text, not for RL")]


def _message(answer: httpx.Response) -> str:
    try:
        error: Any = answer.json()["error"]
        text = error if isinstance(error, str) else str(error["message"])
    except (ValueError, LookupError, TypeError):
        text = answer.text
    return " ".join(text.split())[:300]
