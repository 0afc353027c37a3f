"""Tokens a second of TransformersEngine on a small policy, against transformers' generate in the same run.

Closed loop: every client sends its next call when the last one is answered. `turns` are conversations of three
calls, each prompt beginning with all that was said before. Then the single-turn load once more without OpenAI's shapes
and event loop, to compare when newcomers join: at once, in company (the engine's way), or only when the whole batch has
finished. `streamed` asks for the same answers in chunks, one a token.

    python benchmarks/engine.py [--clients 64] [--calls 12]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from tiny_policies import make_policy

from agl.inference.batch import DecodingBatch
from agl.inference.huggingface import load_model
from agl.inference.rows import Call, Row
from agl.inference.scheduler import Scheduler
from agl.inference.transformers import TransformersEngine
from agl.types.policy import Policy

VOCABULARY = 800
PROMPT_WORDS, ANSWER_TOKENS = (65, 85), (15, 35)
GROUP_SIZE, TURNS = 8, 3
RESULTS = Path(__file__).parent / "results" / "engine.json"


@contextmanager
def measured(name: str, table: dict[str, dict[str, float]]) -> Iterator[Callable[[int], None]]:
    """Time the block, which says how many tokens it sampled."""
    sampled: list[int] = []
    wall, cpu = time.perf_counter(), time.process_time()
    yield sampled.append
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    tokens = sum(sampled)
    table[name] = {
        "tokens": tokens,
        "tokens_per_second": tokens / wall,
        "tokens_per_cpu_second": tokens / cpu,
    }
    print(f"{name:38} {tokens / wall:8.0f} tokens/s {tokens / cpu:8.0f} tokens/cpu-s")


def words(rng: random.Random) -> str:
    """Return a prompt's text."""
    return " ".join(f"w{rng.randrange(5, VOCABULARY)}" for _ in range(rng.randint(*PROMPT_WORDS)))


async def converse(
    engine: TransformersEngine, rng: random.Random, task: random.Random, turns: int, *, streamed: bool
) -> int:
    """Return the number of tokens sampled in one conversation about the task."""
    messages, tokens = [{"role": "user", "content": words(task)}], 0
    for _ in range(turns):
        limit = rng.randint(*ANSWER_TOKENS)
        request = {"model": "policy", "messages": messages, "max_tokens": limit, "logprobs": True}
        if streamed:
            chunks = [chunk async for chunk in engine.stream_chat(request)]
            tokens += chunks.pop()["usage"]["completion_tokens"]
            said = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        else:
            answer = await engine.complete_chat(request)
            tokens += answer["usage"]["completion_tokens"]
            said = answer["choices"][0]["message"]["content"]
        messages = [
            *messages,
            {"role": "assistant", "content": said},
            {"role": "user", "content": "w7 w8 " * 10},
        ]
    return tokens


async def run_engine(policy: Policy, clients: int, calls: int, table: dict[str, dict[str, float]]) -> None:
    """Measure the whole engine, from request to answer."""

    async def client(number: int, *, per_task: int, turns: int, count: int, streamed: bool = False) -> int:
        rng = random.Random(f"client {number}")
        tokens = 0
        for index in range(count):
            task = random.Random(f"{turns} {number // per_task} {index}")
            tokens += await converse(engine, rng, task, turns, streamed=streamed)
        return tokens

    async def all_clients(many: int, **shape: int) -> int:
        return sum(await asyncio.gather(*(client(number, **shape) for number in range(many))))

    async with TransformersEngine(policy, prefix_cache_bytes=0) as engine:
        await all_clients(clients, per_task=1, turns=1, count=2)
        with measured(f"{clients} clients, groups, {TURNS} turns, no prefixes", table) as sampled:
            sampled(
                await all_clients(clients, per_task=GROUP_SIZE, turns=TURNS, count=max(1, calls // TURNS))
            )
    async with TransformersEngine(policy) as engine:
        await all_clients(clients, per_task=1, turns=1, count=2)
        with measured(f"{clients} clients, all tasks differ", table) as sampled:
            sampled(await all_clients(clients, per_task=1, turns=1, count=calls))
        with measured(f"{clients} clients, groups of {GROUP_SIZE}", table) as sampled:
            sampled(await all_clients(clients, per_task=GROUP_SIZE, turns=1, count=calls))
        with measured(f"{clients} clients, groups, {TURNS} turns", table) as sampled:
            sampled(
                await all_clients(clients, per_task=GROUP_SIZE, turns=TURNS, count=max(1, calls // TURNS))
            )
        with measured(f"{clients} clients, groups of {GROUP_SIZE}, streamed", table) as sampled:
            sampled(await all_clients(clients, per_task=GROUP_SIZE, turns=1, count=calls, streamed=True))
        with measured("1 client", table) as sampled:
            sampled(await all_clients(1, per_task=1, turns=1, count=calls))
        with measured("1 client, streamed", table) as sampled:
            sampled(await all_clients(1, per_task=1, turns=1, count=calls, streamed=True))


def run_scheduling(model: Any, clients: int, calls: int, table: dict[str, dict[str, float]]) -> None:
    """The same single-turn load in one thread, with three rules for newcomers."""
    rules = {
        "newcomers join at once": {"newcomers_per_row": 0.0},
        "newcomers join in company": {},
        "newcomers wait for an empty batch": {"newcomers_per_row": float("inf"), "max_steps_waited": 10**9},
    }
    for name, rule in rules.items():
        rng = random.Random(0)
        scheduler = Scheduler(DecodingBatch(model, end_ids=frozenset({2}), max_rows=clients), **rule)

        def next_call(rng: random.Random = rng) -> Call:
            prompt = [rng.randrange(5, VOCABULARY) for _ in range(rng.randint(*PROMPT_WORDS))]
            limit = rng.randint(*ANSWER_TOKENS)
            return Call(
                rows=[Row(prompt_ids=prompt, max_tokens=limit, temperature=1.0, draw=rng.random)],
                num_unfinished=1,
            )

        left = clients * calls
        with measured(name, table) as sampled:
            for _ in range(clients):
                scheduler.add(next_call())
            while not scheduler.idle:
                for call in scheduler.advance():
                    sampled(len(call.rows[0].token_ids))
                    left -= 1
                    if left >= clients:
                        scheduler.add(next_call())


def run_generate(model: Any, clients: int, calls: int, table: dict[str, dict[str, float]]) -> None:
    """What transformers does with the same prompts in left-padded batches of `clients`, without logprobs."""
    rng = random.Random(0)
    with measured("transformers generate", table) as sampled, torch.inference_mode():
        for _ in range(max(1, calls // 4)):
            lengths = [rng.randint(*PROMPT_WORDS) for _ in range(clients)]
            ids, mask = (torch.zeros((clients, max(lengths)), dtype=torch.int64) for _ in range(2))
            for row, length in enumerate(lengths):
                ids[row, -length:] = torch.randint(5, VOCABULARY, (length,))
                mask[row, -length:] = 1
            limits = [rng.randint(*ANSWER_TOKENS) for _ in range(clients)]
            model.generate(ids, attention_mask=mask, max_new_tokens=max(limits), do_sample=True, top_k=0)
            sampled(sum(limits))  # the rest of the longest answer's steps is thrown away


def main() -> None:
    """Print the table and write it down."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--calls", type=int, default=12)
    arguments = parser.parse_args()
    table: dict[str, dict[str, float]] = {}
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        policy = make_policy(Path(folder), VOCABULARY)
        asyncio.run(run_engine(policy, arguments.clients, arguments.calls, table))
        model = load_model(policy, dtype=torch.float32, device=torch.device("cpu"))
        run_scheduling(model, arguments.clients, arguments.calls, table)
        run_generate(model, arguments.clients, arguments.calls, table)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    result = {
        "commit": commit.stdout.strip(),
        "machine": {
            "cpu": platform.processor() or platform.machine(),
            "torch_threads": torch.get_num_threads(),
        },
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "clients": arguments.clients,
        "calls": arguments.calls,
        "results": table,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
