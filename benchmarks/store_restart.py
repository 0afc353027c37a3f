"""How soon a store serves again after `kill -9`: an empty file, and 100,000 spans with the last writes in the log.

    python benchmarks/store_restart.py [--spans 100000] [--rounds 7]

Each round kills `agl store` while a client writes spans to it, starts it again and waits until /v1/health answers. What
it takes on an empty file is Python and its imports. The budget is 2 s. Writes benchmarks/results/store_restart.json.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import report

from agl.errors import StoreUnavailableError
from agl.store.client import LightningStoreClient
from agl.store.sqlite import SqliteLightningStore
from agl.types import AttemptedRollout, RolloutRequest, Span

BUDGET_SECONDS = 2.0
BATCH = 1000
TEXT = "word " * 40


def spans_of(held: AttemptedRollout, first: int) -> list[Span]:
    """Return a batch of spans of an attempt."""
    return [
        Span(
            span_id=f"{number:016x}",
            trace_id=f"{first:032x}",
            name="chat policy",
            start_time_ns=number,
            attributes={"gen_ai.request.model": "policy", "text": f"{number} {TEXT}"},
            rollout_id=held.rollout.rollout_id,
            attempt_id=held.attempt.attempt_id,
        )
        for number in range(first, first + BATCH)
    ]


async def build(path: Path, spans: int) -> None:
    """Make a store of that many spans, a thousand to an attempt."""
    async with SqliteLightningStore(str(path)) as store:
        for first in range(0, spans, BATCH):
            held = await store.start_rollout(RolloutRequest(task=first))
            await store.add_many_spans(spans_of(held, first))


def served(path: Path) -> tuple[subprocess.Popen[str], str, float, float]:
    """Start `agl store`; return the process, its URL, and the seconds and processor seconds until it answered."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "agl", "store", f"store.path={path}", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().split()[3]
    with urllib.request.urlopen(f"{url}/v1/health") as answer:
        answer.read()
    seconds = time.perf_counter() - began
    used = psutil.Process(process.pid).cpu_times()
    return process, url, seconds, used.user + used.system


async def killed_while_writing(process: subprocess.Popen[str], url: str, first: int) -> int:
    """Write spans for a while, kill the server in the middle of it, and return how many batches it took."""
    taken = 0

    async def write() -> None:
        nonlocal taken
        async with LightningStoreClient(url, retry_seconds=0) as store:
            held = await store.start_rollout(RolloutRequest(task=first))
            while True:
                await store.add_many_spans(spans_of(held, first + taken * BATCH))
                taken += 1

    writing = asyncio.create_task(write())
    await asyncio.sleep(0.5)
    process.kill()
    process.wait()
    with suppress(StoreUnavailableError):
        await writing
    return taken


def measure(spans: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Kill and start a store of that many spans."""
    path = folder / f"{spans}.sqlite"
    asyncio.run(build(path, spans))
    seconds: list[float] = []
    processor: list[float] = []
    log_bytes: list[int] = []
    first = spans
    process, url, *_ = served(path)
    for _ in range(rounds):
        if spans:
            first += BATCH * (1 + asyncio.run(killed_while_writing(process, url, first)))
        else:
            process.kill()
            process.wait()
        log_bytes.append(path.with_name(f"{path.name}-wal").stat().st_size)
        process, url, *taken = served(path)
        seconds.append(taken[0])
        processor.append(taken[1])
    process.kill()
    process.wait()
    ordered = sorted(seconds)
    return {
        "spans_at_first": spans,
        "spans_at_last": first,
        "log_megabytes": round(max(log_bytes) / 1e6, 1),
        "median_seconds": round(ordered[len(ordered) // 2], 3),
        "worst_seconds": round(ordered[-1], 3),
        "processor_seconds": round(sorted(processor)[len(processor) // 2], 3),
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    conditions = report.machine()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for spans in (0, options.spans):
            results.append(measure(spans, options.rounds, Path(folder)))
            row = results[-1]
            print(
                f"{row['spans_at_first']:>9,} spans and more, log of {row['log_megabytes']:5.1f} MB: serves again after"
                f" {row['median_seconds']:.2f} s, at worst {row['worst_seconds']:.2f} s (budget {BUDGET_SECONDS:g} s),"
                f" {row['processor_seconds']:.2f} s of one processor"
            )
    report.write("store_restart", conditions, {"budget_seconds": BUDGET_SECONDS, "restarts": results})


if __name__ == "__main__":
    main()
