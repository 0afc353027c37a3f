"""A served proxy before a scripted engine, with one attempt and OpenAI's own client for it."""

import asyncio
from contextlib import asynccontextmanager

from answer_chunks import chunks_from_answer
from openai import AsyncOpenAI

from agl.proxy import LLMProxy
from agl.types import ProxyLLM, RolloutRequest, SpanQuery

HELLO = [{"role": "user", "content": "hello"}]


class ScriptedEngine:
    """Answers the n-th call with the response ids [n, 2] per choice; waits for ``gate``; raises ``failure``."""

    model = "policy"

    def __init__(self):
        self.requests = []
        self.cancelled = asyncio.Event()
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure = None

    async def complete_chat(self, request):
        self.requests.append(request)
        number = len(self.requests)
        self.asked.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if self.failure is not None:
            raise self.failure
        said = request["messages"][-1]["content"]
        return {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": 1,
            "model": request["model"],
            "choices": [
                choice_of(index, f"{said} {number}.{index}", [number, 100 + index, 2])
                for index in range(request.get("n") or 1)
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6},
            "prompt_token_ids": [len(said), 8, 9],
            "policy_version": 5,
        }

    async def stream_chat(self, request):
        for chunk in chunks_from_answer(await self.complete_chat(request)):
            yield chunk


def choice_of(index, text, ids):
    content = [
        {"token": str(token), "logprob": -token / 128, "bytes": None, "top_logprobs": []} for token in ids
    ]
    return {
        "index": index,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
        "token_ids": ids,
        "logprobs": {"content": content, "refusal": None},
    }


@asynccontextmanager
async def serving(store, engine, *, sampling=None, proxy=None):
    """Serve, publish the resource, begin one attempt; yields (server, llm of the attempt, attempt)."""
    async with (proxy or LLMProxy()).serving(store, engine) as server:
        llm = ProxyLLM(base_url=server.url, model="policy", api_key=server.api_key, sampling=sampling or {})
        await store.add_resources({"llm": llm})
        started = await store.start_rollout(RolloutRequest(task=1))
        attempt = started.attempt
        yield server, llm.for_attempt(attempt.rollout_id, attempt.attempt_id), attempt


@asynccontextmanager
async def client_of(llm, **settings):
    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key, **settings) as client:
        yield client


async def spans_of(store, attempt):
    page = await store.query_spans(SpanQuery(rollout_id=attempt.rollout_id, attempt_id=attempt.attempt_id))
    return page.items
