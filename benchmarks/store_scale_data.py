"""The store that store_scale.py asks: runs, workers, names and attributes as in recorded training, from a seed."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import psutil

from agl.store.base import LightningStore
from agl.store.client import LightningStoreClient
from agl.types import AttemptedRollout, RolloutRequest, Span
from agl.types import attributes as key

RUNS = [f"run-{number}-of-the-benchmark" for number in range(8)]
"""The first has every second rollout."""
WORKERS = [f"worker-host-{number:02}-12345" for number in range(16)]
"""The first claims every fourth chunk of rollouts."""
MODELS = ("policy", "judge")
CHUNK = 100
WORDS = ("how", "many", "employees", "of", "the", "department", "earn", "more", "than", "their", "manager")


def response_id(number: int) -> str:
    """Return the id of the answer that the span of this number records; not every span records one."""
    return f"chatcmpl-{number * 2654435761 % 2**32:08x}{number:08x}"


async def build(url: str, pid: int, *, spans: int, rollouts: int) -> dict[str, Any]:
    """Fill the store that is served there, and return how fast that went and what memory its process took."""
    server = psutil.Process(pid)
    rng = random.Random(0)
    memory: list[float] = []
    start = time.perf_counter()
    async with LightningStoreClient(url) as store:
        for name in RUNS:
            await store.add_run(name=name, run_id=name)
        done = number = 0
        while done < rollouts:
            count = min(CHUNK, rollouts - done)
            number = await _chunk(store, rng, done, count, number, spans // rollouts)
            done += count
            memory.append(server.memory_info().rss / 1e6)
    seconds = time.perf_counter() - start
    return {
        "spans_per_second": round(number / seconds),
        "rollouts_per_second": round(rollouts / seconds),
        "server_resident_megabytes_after_a_tenth": round(memory[len(memory) // 10]),
        "server_resident_megabytes_max": round(max(memory)),
    }


async def _chunk(
    store: LightningStore, rng: random.Random, done: int, count: int, number: int, spans_each: int
) -> int:
    chunk = done // CHUNK
    run_id = RUNS[0] if chunk % 2 == 0 else RUNS[1 + chunk // 2 % (len(RUNS) - 1)]
    worker_id = WORKERS[0] if chunk % 4 == 0 else WORKERS[chunk % len(WORKERS)]
    requests = [
        RolloutRequest(
            task={"question": _text(rng, 20), "db_id": f"db_{rng.randrange(20)}"},
            run_id=run_id,
            mode="val" if rng.random() < 0.1 else "train",
            group_id=f"{run_id}-{(done + index) // 8}",
        )
        for index in range(count)
    ]
    await store.enqueue_many_rollouts(requests)
    claimed = await store.dequeue_many_rollouts(worker_id=worker_id, limit=count, run_id=run_id)
    batches: list[list[Span]] = []
    for held in claimed:
        batches.append([_span(rng, held, number + index, index) for index in range(spans_each)])
        number += spans_each
    await asyncio.gather(*(store.add_many_spans(batch) for batch in batches))
    await asyncio.gather(*(_finish(store, held, rng.random()) for held in claimed))
    return number


async def _finish(store: LightningStore, held: AttemptedRollout, fate: float) -> None:
    """Most succeed, some fail, few are cancelled, and few stay open."""
    rollout_id, attempt_id = held.rollout.rollout_id, held.attempt.attempt_id
    if fate < 0.93:
        await store.update_attempt(rollout_id, attempt_id, status="succeeded", reward=round(fate, 3))
    elif fate < 0.98:
        await store.update_attempt(rollout_id, attempt_id, status="failed")
    elif fate < 0.99:
        await store.cancel_rollout(rollout_id)


def _span(rng: random.Random, held: AttemptedRollout, number: int, index: int) -> Span:
    name, attributes = _named(rng, number, index)
    return Span(
        span_id=f"{number + 1:016x}",
        trace_id=f"{held.attempt.sequence_id:04x}{number - index + 1:028x}",
        name=name,
        kind="client",
        attributes=attributes,
        start_time_ns=1_700_000_000_000_000_000 + number * 1_000_000,
        end_time_ns=1_700_000_000_000_000_000 + number * 1_000_000 + rng.randrange(10**9),
        rollout_id=held.rollout.rollout_id,
        attempt_id=held.attempt.attempt_id,
    )


def _named(rng: random.Random, number: int, index: int) -> tuple[str, dict[str, Any]]:
    """Most spans of a rollout are calls to the model; some are what the agent emitted."""
    if index == 0:
        return key.ROLLOUT_SPAN, {key.AGENT: "sql", "attempt": 1, "host": WORKERS[number % 16]}
    if index == 1:
        return key.REWARD_SPAN, {key.REWARD_VALUE: round(rng.random(), 3)}
    if index == 2:
        return f"step {number % 100}", {key.MESSAGE_BODY: _text(rng, 12)}
    if index in (3, 4):
        tool = ("sql.execute", "sql.schema", "search")[rng.randrange(3)]
        return f"tool {tool}", {"tool.name": tool, "tool.rows": rng.randrange(100), "tool.cached": index == 3}
    if rng.random() < 0.001:
        return key.EXCEPTION_SPAN, {key.ERROR_TYPE: "TimeoutError", key.MESSAGE_BODY: _text(rng, 12)}
    return _call(rng, number)


def _call(rng: random.Random, number: int) -> tuple[str, dict[str, Any]]:
    model = MODELS[rng.random() < 0.2]
    tokens_in, tokens_out = rng.randrange(50, 350), rng.randrange(10, 60)
    return f"chat {model}", {
        key.OPERATION: "chat",
        key.PROVIDER: "openai",
        key.REQUEST_MODEL: model,
        key.RESPONSE_ID: response_id(number),
        key.FINISH_REASONS: ["length" if rng.random() < 0.01 else "stop"],
        key.INPUT_TOKENS: tokens_in,
        key.OUTPUT_TOKENS: tokens_out,
        key.TEMPERATURE: 0.7 if model == "judge" else 1.0,
        key.POLICY_VERSION: number // 50_000,
        key.AGENT: "sql",
        key.INPUT_MESSAGES: _text(rng, 40),
        key.OUTPUT_MESSAGES: _text(rng, 15),
    }


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))
