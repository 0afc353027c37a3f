"""Measure the in-process stores: rollout lifecycles and spans a second, in memory and in a file.

    python benchmarks/store.py

A lifecycle is enqueue, dequeue, 8 spans in one call and the final report, by many callers at once. Prints a table and
writes benchmarks/results/store.json with machine and commit.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agl.store.base import LightningStore
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.types import RolloutQuery, RolloutRequest, Span, SpanQuery

CALLERS = 64
LIFECYCLES = 6_000
SPANS = 60_000
SPANS_A_ROLLOUT = 8
SPAN_BATCH = 200
QUERIES = 200
RESULTS = Path(__file__).parent / "results" / "store.json"

_numbers = itertools.count()


def new_span(rollout_id: str, attempt_id: str) -> Span:
    """Return a span of the size of a small recorded call, about 700 bytes of attributes."""
    number = next(_numbers)
    return Span(
        span_id=f"{number:016x}",
        trace_id=f"{number // SPANS_A_ROLLOUT:032x}",
        name="chat policy",
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "policy",
            "gen_ai.request.temperature": 1.0,
            "gen_ai.usage.input_tokens": 60,
            "gen_ai.usage.output_tokens": 20,
            "agl.policy_version": 3,
            "agl.prompt_token_ids": "AAAA" * 80,
            "agl.response_token_ids": "AAAA" * 27,
            "agl.response_logprobs": "AAAA" * 27,
        },
        start_time_ns=number,
        end_time_ns=number + 1,
        rollout_id=rollout_id,
        attempt_id=attempt_id,
    )


async def lifecycle(store: LightningStore, worker_id: str, *, single_spans: bool = False) -> None:
    """Take one rollout from the queue's end to its reward."""
    await store.enqueue_rollout(RolloutRequest(task={"question": "how many?"}, run_id="run"))
    held = await store.dequeue_rollout(worker_id=worker_id)
    assert held is not None
    rollout_id, attempt_id = held.rollout.rollout_id, held.attempt.attempt_id
    spans = [new_span(rollout_id, attempt_id) for _ in range(SPANS_A_ROLLOUT)]
    if single_spans:
        for span in spans:
            await store.add_span(span)
    else:
        await store.add_many_spans(spans)
    await store.update_attempt(rollout_id, attempt_id, status="succeeded", reward=1.0)


async def rate(count: int, work: Callable[[int], Awaitable[None]], callers: int = CALLERS) -> float:
    """Return how often a second ``callers`` callers get the work done, ``count`` times in all."""
    numbers = iter(range(count))

    async def caller() -> None:
        for number in numbers:
            await work(number)

    start = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return count / (time.perf_counter() - start)


async def measure(store: LightningStore) -> dict[str, float]:
    """Return the numbers of one store."""
    results: dict[str, float] = {}
    cpu = time.process_time()
    results["lifecycles/s"] = await rate(LIFECYCLES, lambda n: lifecycle(store, f"worker-{n % CALLERS}"))
    # Does not depend on what else the machine is doing; includes making the spans, about 30.
    results["CPU microseconds a lifecycle"] = (time.process_time() - cpu) / LIFECYCLES * 1e6
    results["lifecycles/s, spans one by one"] = await rate(
        LIFECYCLES // 4, lambda n: lifecycle(store, f"worker-{n % CALLERS}", single_spans=True)
    )
    results["lifecycles/s, 1 caller"] = await rate(
        LIFECYCLES // 8, lambda _: lifecycle(store, "worker"), callers=1
    )
    held = await store.start_rollout(RolloutRequest(task={}))
    rollout_id, attempt_id = held.rollout.rollout_id, held.attempt.attempt_id
    batches = iter(
        [[new_span(rollout_id, attempt_id) for _ in range(SPAN_BATCH)] for _ in range(SPANS // SPAN_BATCH)]
    )

    async def add(_: int) -> None:
        await store.add_many_spans(next(batches))

    results["spans/s, batches of 200"] = SPAN_BATCH * await rate(SPANS // SPAN_BATCH, add, callers=8)
    ids = [rollout.rollout_id for rollout in (await store.query_rollouts(RolloutQuery(limit=QUERIES))).items]

    async def look(number: int) -> None:
        await store.query_spans(SpanQuery(rollout_id=ids[number % len(ids)]))

    results["span queries of one rollout/s"] = await rate(QUERIES, look, callers=4)
    return results


def machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    return {
        "commit": commit.stdout.strip(),
        "cpu_cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "platform": platform.platform(),
        "processor": platform.machine(),
        "python": platform.python_version(),
    }


async def main() -> None:
    """Measure both stores, print the table and write it."""
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        stores = {
            "memory": InMemoryLightningStore(),
            "file": SqliteLightningStore(str(Path(folder) / "store.sqlite")),
        }
        for name, store in stores.items():
            async with store:
                results[name] = await measure(store)
    width = max(map(len, results["file"]))
    sys.stdout.write(f"{'':{width}}{''.join(f'{name:>12}' for name in results)}\n")
    for what in results["file"]:
        numbers = "".join(f"{result[what]:12,.0f}" for result in results.values())
        sys.stdout.write(f"{what:{width}}{numbers}\n")
    RESULTS.parent.mkdir(exist_ok=True)
    text = json.dumps({"machine": machine(), "results": results}, indent=2)
    RESULTS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
