"""The proxy of benchmarks/proxy.py in a process of its own, as `agl train` and `agl proxy` run it.

    python proxy_served.py --upstream http://127.0.0.1:8000/v1 --attempts 64 [--kind endpoint|external|engine]

The store is a SQLite file in the same process, durable before an answer ends. ``endpoint`` reaches the model server as
an endpoint of the settings, ``external`` as the engine of that name, and ``engine`` is a function in this process.
Prints its URL and the paths of the attempts as JSON, and ends with its input.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agl.inference.external import ExternalEngine
from agl.launch.event_loop import loop_factory
from agl.launch.interpreter import tune_for_serving
from agl.proxy import LLMProxy
from agl.proxy.server import ProxyServer
from agl.store.base import LightningStore
from agl.store.sqlite import SqliteLightningStore
from agl.types import ModelEndpoint, ProxyLLM, RolloutRequest

PROMPT_TOKENS, RESPONSE_TOKENS = 256, 128
KINDS = ("endpoint", "external", "engine")


class InstantEngine:
    """Answers every call at once with the same tokens."""

    model = "policy"

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer as an engine gives it: with ids and logprobs."""
        del request
        ids = list(range(RESPONSE_TOKENS))
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": "word " * RESPONSE_TOKENS},
            "finish_reason": "stop",
            "token_ids": ids,
            "logprobs": {"content": [{"token": "w", "logprob": -0.5} for _ in ids]},
        }
        return {
            "id": "chatcmpl-0",
            "object": "chat.completion",
            "created": 1,
            "model": "policy",
            "choices": [choice],
            "usage": {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": RESPONSE_TOKENS},
            "prompt_token_ids": list(range(PROMPT_TOKENS)),
            "policy_version": 0,
        }

    async def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Stream the answer: all of it at once, then the usage."""
        answer = await self.complete_chat(request)
        (choice,), usage = answer.pop("choices"), answer.pop("usage")
        delta = choice.pop("message")
        chunk = answer | {"object": "chat.completion.chunk"}
        yield chunk | {"choices": [choice | {"delta": delta}]}
        yield chunk | {"choices": [], "usage": usage}


@asynccontextmanager
async def proxy_of(options: argparse.Namespace, store: LightningStore) -> AsyncGenerator[ProxyServer]:
    """Serve what was asked for."""
    async with AsyncExitStack() as stack:
        proxy, engine = LLMProxy(), None
        if options.kind == "endpoint":
            proxy = LLMProxy(endpoints={"server": ModelEndpoint(model="policy", urls=(options.upstream,))})
        elif options.kind == "external":
            external = ExternalEngine(options.upstream, "policy", ask_for_token_ids=True)
            engine = await stack.enter_async_context(external)
        else:
            engine = InstantEngine()
        yield await stack.enter_async_context(proxy.serving(store, engine))


async def paths_of(store: LightningStore, url: str, num_attempts: int) -> list[str]:
    """Start rollouts and return where their attempts' calls go."""
    llm = ProxyLLM(base_url=url, model="policy", sampling={"temperature": 1.0})
    await store.add_resources({"llm": llm})
    paths: list[str] = []
    for _ in range(num_attempts):
        attempt = (await store.start_rollout(RolloutRequest(task=0))).attempt
        base = llm.for_attempt(attempt.rollout_id, attempt.attempt_id).base_url
        paths.append(urlsplit(f"{base}/chat/completions").path)
    return paths


async def serve(options: argparse.Namespace) -> None:
    """Serve until the input ends."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        store = await stack.enter_async_context(SqliteLightningStore(str(Path(folder) / "store.sqlite")))
        server = await stack.enter_async_context(proxy_of(options, store))
        paths = await paths_of(store, server.url, options.attempts)
        print(json.dumps({"root": server.url, "paths": paths, "pid": os.getpid()}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--upstream", help="base URL of the model server")
    parser.add_argument("--kind", choices=KINDS, default="endpoint")
    parser.add_argument("--attempts", type=int, default=64)
    options = parser.parse_args()
    tune_for_serving()  # as `agl proxy` does
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(options))


if __name__ == "__main__":
    main()
