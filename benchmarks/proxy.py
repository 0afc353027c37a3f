"""What the proxy adds to a call: the same model server directly, and behind the proxy with durable records.

The model server is a function that answers at once with 128 sampled tokens, their ids and logprobs. Directly, it stands
behind the same HTTP server as the proxy; through the proxy, each call is looked up, recorded in the store, and then
answered. The client is its own process, so that on two cores each side has one. Rounds of the variants alternate, as a
shared machine's speed drifts; the table shows the median round.

    python benchmarks/proxy.py [--rounds 5] [--calls 1500]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import uvicorn

from agl.proxy import LLMProxy
from agl.store.base import LightningStore
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.types import ProxyLLM, RolloutRequest

SCRIPT = Path(__file__).resolve()
RESULTS = SCRIPT.parent / "results" / "proxy.json"
WARM_UP = 5
"""One call before the clock runs for so many measured ones."""
FEW = 64
"""Attempts that make many calls each; otherwise every call is the first one of its attempt and has to be looked up."""
PROMPT_TOKENS, RESPONSE_TOKENS = 256, 128
BODY = orjson.dumps(
    {
        "model": "policy",
        "messages": [{"role": "system", "content": "s" * 400}, {"role": "user", "content": "u" * 600}],
        "temperature": 1.0,
        "max_tokens": RESPONSE_TOKENS,
    }
)
Url = tuple[str, list[str]]
"""A server's root and the paths that calls go to in turn."""


class InstantEngine:
    """Answers every call at once with the same tokens."""

    model = "policy"

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer as an engine gives it: with ids and logprobs."""
        return instant_answer(with_ids=bool(request.get("return_token_ids")))

    async def stream_chat(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Stream the answer: all of it at once, then the usage."""
        answer = await self.complete_chat(request)
        (choice,), usage = answer.pop("choices"), answer.pop("usage")
        delta = choice.pop("message")
        chunk = answer | {"object": "chat.completion.chunk"}
        yield chunk | {"choices": [choice | {"delta": delta}]}
        yield chunk | {"choices": [], "usage": usage}


def instant_answer(*, with_ids: bool) -> dict[str, Any]:
    """Return a chat completion of RESPONSE_TOKENS tokens."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": "word " * RESPONSE_TOKENS},
        "finish_reason": "stop",
        "logprobs": None,
    }
    answer: dict[str, Any] = {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 1,
        "model": "policy",
        "choices": [choice],
        "usage": {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": RESPONSE_TOKENS},
    }
    if with_ids:
        choice["token_ids"] = list(range(RESPONSE_TOKENS))
        choice["logprobs"] = {"content": [{"token": "w", "logprob": -0.5} for _ in range(RESPONSE_TOKENS)]}
        answer |= {"prompt_token_ids": list(range(PROMPT_TOKENS)), "policy_version": 0}
    return answer


async def mock_server(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Be the model server, without a proxy."""
    assert scope["type"] == "http"
    orjson.loads((await receive())["body"])
    body = orjson.dumps(instant_answer(with_ids=False))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class QuietServer(uvicorn.Server):
    """A server whose end the benchmark awaits."""

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Remember the port."""
        await super().startup(sockets)
        self.port.set_result(self.servers[0].sockets[0].getsockname()[1])

    port: asyncio.Future[int]


@asynccontextmanager
async def direct() -> AsyncGenerator[Url]:
    """Serve the mock without a proxy."""
    config = uvicorn.Config(mock_server, port=0, lifespan="off", log_config=None, access_log=False, ws="none")
    server = QuietServer(config)
    server.port = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(server.serve())
    yield f"http://127.0.0.1:{await server.port}", ["/v1/chat/completions"]
    server.should_exit = True
    await task


@asynccontextmanager
async def proxied(make_store: Callable[[Path], LightningStore], *, attempts: int) -> AsyncGenerator[Url]:
    """Serve the mock behind the proxy; calls go to that many attempts in turn."""
    with tempfile.TemporaryDirectory() as folder:
        async with make_store(Path(folder)) as store, LLMProxy().serving(store, InstantEngine()) as server:
            llm = ProxyLLM(base_url=server.url, model="policy", sampling={"temperature": 1.0})
            await store.add_resources({"llm": llm})
            paths: list[str] = []
            for _ in range(attempts):
                attempt = (await store.start_rollout(RolloutRequest(task=0))).attempt
                base = llm.for_attempt(attempt.rollout_id, attempt.attempt_id).base_url
                paths.append(urlsplit(f"{base}/chat/completions").path)
            yield server.url, paths


def in_memory(folder: Path) -> LightningStore:
    """Return a store that ends with the process."""
    del folder
    return InMemoryLightningStore()


def in_file(folder: Path) -> LightningStore:
    """Return a store in a file."""
    return SqliteLightningStore(str(folder / "store.sqlite"))


async def load(root: str, paths: list[str], *, connections: int, calls: range) -> list[float]:
    """Make the calls with these numbers over kept connections; return each call's seconds."""
    parts = urlsplit(root)
    seconds: list[float] = []
    numbers = iter(calls)

    async def talk() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        for number in numbers:
            path = paths[number % len(paths)]
            head = f"POST {path} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
            began = time.perf_counter()
            writer.write(f"{head}content-length: {len(BODY)}\r\n\r\n".encode() + BODY)
            answered = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not answered.startswith(b"http/1.1 200"):
                raise SystemExit(f"{path}: {answered.decode()}")
            length = int(answered.split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            seconds.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(talk() for _ in range(connections)))
    return seconds


async def measured(url: Url, *, connections: int, calls: int) -> dict[str, float]:
    """Run the client process against the server; return p50 and p99 in ms and calls a second."""
    order = json.dumps({"root": url[0], "paths": url[1], "connections": connections, "calls": calls})
    command = [sys.executable, str(SCRIPT), "--client"]
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    out, _ = await process.communicate(order.encode())
    if process.returncode:
        raise SystemExit("the client failed")
    return json.loads(out)


def be_client(order: dict[str, Any]) -> dict[str, float]:
    """Warm up, measure, summarize. The client process."""
    calls, settings = order.pop("calls"), order
    warm = calls // WARM_UP
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(load(**settings, calls=range(warm)))
        began = time.perf_counter()
        seconds = sorted(runner.run(load(**settings, calls=range(warm, warm + calls))))
        took = time.perf_counter() - began
    return {
        "p50_ms": seconds[len(seconds) // 2] * 1000,
        "p99_ms": seconds[len(seconds) * 99 // 100] * 1000,
        "calls_per_second": len(seconds) / took,
    }


async def compare(*, rounds: int, calls: int) -> dict[str, dict[str, dict[str, float]]]:
    """Measure every variant at 1 and 32 connections; return the medians over the rounds."""
    every = calls + calls // WARM_UP
    variants: dict[str, Callable[[], Any]] = {
        "direct": direct,
        "memory store": lambda: proxied(in_memory, attempts=FEW),
        "file store": lambda: proxied(in_file, attempts=FEW),
        "file store, 1 call each": lambda: proxied(in_file, attempts=every),
    }
    table: dict[str, dict[str, dict[str, float]]] = {name: {} for name in variants}
    for connections in (1, 32):
        seen: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
        for _ in range(rounds):
            for name, serve in variants.items():
                async with serve() as url:
                    seen[name].append(await measured(url, connections=connections, calls=calls))
        for name, results in seen.items():
            medians = {key: statistics.median(result[key] for result in results) for key in results[0]}
            table[name][str(connections)] = medians
    return table


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def main() -> None:
    """Measure, print the table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=1500)
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        print(json.dumps(be_client(json.load(sys.stdin))))
        return
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        table = runner.run(compare(rounds=options.rounds, calls=options.calls))
    print(f"{'':26}{'connections':>12}{'p50 ms':>10}{'p99 ms':>10}{'calls/s':>10}")
    for name, by_connections in table.items():
        for connections, row in by_connections.items():
            numbers = f"{row['p50_ms']:10.2f}{row['p99_ms']:10.2f}{row['calls_per_second']:10.0f}"
            print(f"{name:26}{connections:>12}{numbers}")
    added = {name: rows["1"]["p50_ms"] - table["direct"]["1"]["p50_ms"] for name, rows in table.items()}
    print(
        "added p50 at 1 connection:",
        {name: round(ms, 2) for name, ms in added.items() if name != "direct"},
        "ms",
    )
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    results = {
        "commit": commit,
        "machine": f"{platform.machine()}, {len(_cores())} cores, Python {platform.python_version()}",
        "rounds": options.rounds,
        "calls": options.calls,
        "table": table,
        "added_p50_ms": added,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


def _cores() -> set[int]:
    return os.sched_getaffinity(0)


if __name__ == "__main__":
    main()
