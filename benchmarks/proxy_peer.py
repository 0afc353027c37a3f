"""agentlightning 0.3.0's proxy for benchmarks/proxy.py: LiteLLM's, with token ids asked for and every call recorded.

Run by the peer's own interpreter; imports nothing of agl. The store is in the memory of the same process, so that
nothing is durable and no request goes to a store. Says where it serves as JSON, to a file descriptor of its own, for
libraries print to the output; ends with its input.

    python proxy_peer.py http://127.0.0.1:8000/v1 PORT --told FILE_DESCRIPTOR --attempts 64
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading

from agentlightning.llm_proxy import LLMProxy
from agentlightning.store.memory import InMemoryLightningStore


async def serve(upstream: str, port: int, told_to: int, num_attempts: int) -> None:
    """Serve until the input ends."""
    store = InMemoryLightningStore(thread_safe=True)
    model = {
        "model_name": "policy",
        "litellm_params": {"model": "openai/policy", "api_base": upstream, "api_key": "none"},
    }
    open_to_all = {"general_settings": {"dangerously_permit_weak_or_unset_master_key": True}}
    proxy = LLMProxy(
        port=port,
        host="127.0.0.1",
        model_list=[model],
        store=store,
        litellm_config=open_to_all,
        launch_mode="thread",
    )
    await proxy.start()
    paths: list[str] = []
    for _ in range(num_attempts):
        held = await store.start_rollout({"question": "how many?"})
        paths.append(f"/rollout/{held.rollout_id}/attempt/{held.attempt.attempt_id}/v1/chat/completions")
    told = {"root": f"http://127.0.0.1:{port}", "paths": paths, "pid": os.getpid()}
    os.write(told_to, json.dumps(told).encode() + b"\n")
    closed = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), closed.set()), daemon=True).start()
    await asyncio.to_thread(closed.wait)
    os._exit(0)  # its threads do not end


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("upstream")
    parser.add_argument("port", type=int)
    parser.add_argument("--told", type=int, required=True, help="where to say where it serves")
    parser.add_argument("--attempts", type=int, default=64)
    options = parser.parse_args()
    asyncio.run(serve(options.upstream, options.port, options.told, options.attempts))


if __name__ == "__main__":
    main()
