"""A store of 1,000,000 spans over 50,000 rollouts: what each query of it costs, and what many waiters and leases cost.

    python benchmarks/store_scale.py [--spans 1000000 --rollouts 50000] [--keep FILE]

The file is filled over HTTP, through an `agl store`, with the same records each time. Then every query is asked in
process, 50 times with varying values; the p50 of each has a budget of 20 ms, for a page of 100 and one of 1,000 (most
of whose time goes into building 1,000 records). Beside the time stands the processor time, which other programs on the
machine disturb less. Prints tables and writes benchmarks/results/store_scale.json.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import report
from store import agl_server
from store_scale_data import MODELS, RUNS, WORKERS, build, response_id

from agl.store.base import LightningStore
from agl.store.client import LightningStoreClient
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.types import Page, RolloutConfig, RolloutQuery, RolloutRequest, SpanQuery

BUDGET_MS = 20.0
SWEEP_BUDGET_MS = 5.0
LEASES = 10_000
WAITERS = 10_000
CLAIMS = 500
LIMITS = (100, 1000)

Ask = Callable[[int, int], Awaitable[object]]
"""Asks a query for the n-th time with a limit."""


def rollout_queries(store: LightningStore, middle: dict[int, str]) -> dict[str, Ask]:
    """Return the queries of rollouts by name."""

    def ask(make: Callable[[int], dict[str, Any]]) -> Ask:
        return lambda number, limit: store.query_rollouts(RolloutQuery(limit=limit, **make(number)))

    return {
        "rollouts: first page": ask(lambda _: {}),
        "rollouts: middle page": lambda _, limit: store.query_rollouts(
            RolloutQuery(limit=limit, cursor=middle[limit])
        ),
        "rollouts: newest first": ask(lambda _: {"order": "desc"}),
        "rollouts: best reward first": ask(lambda _: {"order": "desc", "sort_by": "reward"}),
        "rollouts: of a run": ask(lambda n: {"run_id": RUNS[n % len(RUNS)]}),
        "rollouts: succeeded": ask(lambda _: {"status": ("succeeded",)}),
        "rollouts: failed or cancelled": ask(lambda _: {"status": ("failed", "cancelled")}),
        "rollouts: open": ask(lambda _: {"status": ("pending", "preparing", "running", "requeuing")}),
        "rollouts: of a worker": ask(lambda n: {"worker_id": WORKERS[n % len(WORKERS)]}),
        "rollouts: of a busy worker, newest first": ask(lambda _: {"worker_id": WORKERS[0], "order": "desc"}),
        "rollouts: failed of a run": ask(lambda n: {"run_id": RUNS[n % len(RUNS)], "status": ("failed",)}),
        "rollouts: failed of a run and worker": ask(
            lambda n: {
                "run_id": RUNS[n % len(RUNS)],
                "status": ("failed",),
                "worker_id": WORKERS[n % len(WORKERS)],
            }
        ),
        "rollouts: cancelled of a worker": ask(
            lambda n: {"status": ("cancelled",), "worker_id": WORKERS[n % len(WORKERS)]}
        ),
        "rollouts: val of a run": ask(lambda n: {"run_id": RUNS[n % len(RUNS)], "mode": "val"}),
    }


def span_queries(
    store: LightningStore, middle: dict[int, str], traces: list[str], spans: int
) -> dict[str, Ask]:
    """Return the queries of spans by name."""

    def ask(make: Callable[[int], dict[str, Any]]) -> Ask:
        return lambda number, limit: store.query_spans(SpanQuery(limit=limit, **make(number)))

    def attribute(key: str, value: Callable[[int], Any], **others: Any) -> Ask:
        return ask(lambda n: {"attributes": {key: value(n)}, **others})

    big = RUNS[0]
    return {
        "spans: first page": ask(lambda _: {}),
        "spans: middle page": lambda _, limit: store.query_spans(
            SpanQuery(limit=limit, cursor=middle[limit])
        ),
        "spans: newest first": ask(lambda _: {"order": "desc"}),
        "spans: a rollout's trace": ask(lambda n: {"rollout_id": traces[n % len(traces)]}),
        "spans: of a run": ask(lambda n: {"run_id": RUNS[n % len(RUNS)]}),
        "spans: of a run, newest first": ask(lambda n: {"run_id": RUNS[n % len(RUNS)], "order": "desc"}),
        "spans: by frequent name": ask(lambda _: {"name": "chat policy"}),
        "spans: by rare name": ask(lambda _: {"name": "agl.exception"}),
        "spans: by name, newest first": ask(lambda _: {"name": "agl.reward", "order": "desc"}),
        "spans: by name prefix": ask(lambda n: {"name_prefix": ("chat ", "tool ", "agl.")[n % 3]}),
        "spans: by name prefix of 100 names": ask(lambda _: {"name_prefix": "step "}),
        "spans: by name in a run": ask(lambda n: {"run_id": RUNS[n % len(RUNS)], "name": "agl.reward"}),
        "spans: by name prefix in a run": ask(
            lambda n: {"run_id": RUNS[n % len(RUNS)], "name_prefix": "tool "}
        ),
        "spans: by name that is not there": ask(lambda n: {"run_id": big, "name": f"none {n}"}),
        "spans: by rare attribute": attribute("gen_ai.response.id", lambda n: response_id(n * 997 % spans)),
        "spans: by frequent attribute": attribute("gen_ai.request.model", lambda n: MODELS[n % 2]),
        "spans: by attribute of 1 in 300": attribute("gen_ai.usage.input_tokens", lambda n: 100 + n),
        "spans: by number with fraction": attribute("gen_ai.request.temperature", lambda _: 0.7),
        "spans: by list": attribute("gen_ai.response.finish_reasons", lambda _: ["length"]),
        "spans: by attribute that is not there": attribute("gen_ai.request.model", lambda n: f"none {n}"),
        "spans: by two attributes": ask(
            lambda n: {
                "attributes": {"gen_ai.request.model": MODELS[0], "gen_ai.usage.input_tokens": 100 + n}
            }
        ),
        "spans: by rare attribute in a run": attribute(
            "gen_ai.response.id", lambda n: response_id(n * 997 % spans), run_id=big
        ),
        "spans: by frequent attribute in a run": attribute(
            "gen_ai.request.model", lambda n: MODELS[n % 2], run_id=RUNS[-1]
        ),
        "spans: by attribute not in that run": attribute("agl.policy_version", lambda _: 0, run_id=RUNS[-1]),
        "spans: by attribute and name": attribute(
            "gen_ai.usage.input_tokens", lambda n: 100 + n, name="chat policy"
        ),
        "spans: by long text": attribute("gen_ai.output.messages", lambda n: f"no answer {n} " * 20),
    }


async def cursors(list_page: Callable[[int, str | None], Awaitable[Page[Any]]], count: int) -> dict[int, str]:
    """Return, for each limit, a cursor in the middle of a list of that many records."""
    cursor: str | None = None
    for _ in range(max(1, count // 2 // 10_000)):
        page = await list_page(min(10_000, max(1, count // 2)), cursor)
        cursor = page.next_cursor
    assert cursor is not None
    return dict.fromkeys(LIMITS, cursor)


async def timed(ask: Ask, limit: int, times: int) -> dict[str, float]:
    """Return p50 and p99 of a query, and how many records it answered at most."""
    seconds: list[float] = []
    cpu: list[float] = []
    found = 0
    for number in range(times):
        start, cpu_start = time.perf_counter(), time.process_time()
        answer = await ask(number, limit)
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
        if isinstance(answer, Page):
            found = max(found, len(answer.items))
    return {**report.milliseconds(seconds), "cpu_p50_ms": report.milliseconds(cpu)["p50_ms"], "found": found}


async def measure_queries(store: LightningStore, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return every query's times, a page of 100 and of 1,000."""
    spans, rollouts = options.spans, options.rollouts
    middle_rollouts = await cursors(
        lambda limit, cursor: store.query_rollouts(RolloutQuery(limit=limit, cursor=cursor)), rollouts
    )
    middle_spans = await cursors(
        lambda limit, cursor: store.query_spans(SpanQuery(limit=limit, cursor=cursor)), spans
    )
    page = await store.query_rollouts(RolloutQuery(limit=1000, status=("succeeded",)))
    traces = [rollout.rollout_id for rollout in page.items]
    queries = {
        **rollout_queries(store, middle_rollouts),
        **span_queries(store, middle_spans, traces, spans),
        "statistics": lambda _, __: store.statistics(),
        "statistics of a run": lambda n, _: store.statistics(run_id=RUNS[n % len(RUNS)]),
    }
    results: dict[str, dict[str, Any]] = {}
    for name, ask in queries.items():
        if options.only not in name:
            continue
        rows = {f"page of {limit}": await timed(ask, limit, options.queries) for limit in LIMITS}
        results[name] = rows
        over = "" if all(row["p50_ms"] < BUDGET_MS for row in rows.values()) else "  OVER BUDGET"
        cells = "".join(
            f"{row['p50_ms']:10.2f}{row['cpu_p50_ms']:8.2f}{row['p99_ms']:9.2f}{row['found']:6.0f}"
            for row in rows.values()
        )
        sys.stdout.write(f"{name:42}{cells}{over}\n")
        sys.stdout.flush()
    return results


async def measure_sweeps(store: Any) -> dict[str, float]:
    """Return what a sweep costs with 10,000 running attempts of which none is due."""
    config = RolloutConfig(timeout_seconds=3600.0, unresponsive_seconds=600.0)
    await store.enqueue_many_rollouts(
        [RolloutRequest(task={}, run_id="leases", config=config) for _ in range(LEASES)]
    )
    claimed = await store.dequeue_many_rollouts(worker_id="leases", limit=LEASES, run_id="leases")
    assert len(claimed) == LEASES
    seconds: list[float] = []
    for _ in range(200):
        start = time.perf_counter()
        await store.sweep()
        seconds.append(time.perf_counter() - start)
    return report.milliseconds(seconds)


async def measure_waiters(url: str, pid: int) -> dict[str, Any]:
    """Return what a claim costs beside 10,000 clients that wait for rollouts of another run, and without them."""
    server = psutil.Process(pid)
    results: dict[str, Any] = {}
    async with LightningStoreClient(url) as store:

        async def claims(name: str) -> None:
            seconds: list[float] = []
            before = server.cpu_times()
            for _ in range(CLAIMS):
                await store.enqueue_rollout(RolloutRequest(task={}, run_id="busy"))
                start = time.perf_counter()
                assert await store.dequeue_rollout(worker_id="w", run_id="busy") is not None
                seconds.append(time.perf_counter() - start)
            after = server.cpu_times()
            spent = after.user + after.system - before.user - before.system
            results[name] = {**report.milliseconds(seconds), "server_cpu_ms": spent / CLAIMS * 1e3}

        await claims("warm")
        await claims("without")
        waiting = [
            asyncio.create_task(
                store.dequeue_rollout(worker_id=f"idle-{number}", run_id="idle", wait_seconds=600.0)
            )
            for number in range(WAITERS)
        ]
        await asyncio.to_thread(_await_long_polls, url)
        results["resident_megabytes"] = round(server.memory_info().rss / 1e6)
        await claims("beside 10,000 waiting")
        await store.enqueue_many_rollouts([RolloutRequest(task={}, run_id="idle") for _ in range(WAITERS)])
        served = await asyncio.gather(*waiting)
        assert len({one.rollout.rollout_id for one in served if one is not None}) == WAITERS
    del results["warm"]
    return results


def _await_long_polls(url: str) -> None:
    waiting = 0
    while waiting < WAITERS:
        time.sleep(0.2)
        with urllib.request.urlopen(f"{url}/metrics", timeout=30.0) as answer:
            lines = answer.read().decode().splitlines()
        waiting = next(float(line.split()[1]) for line in lines if line.startswith("agl_store_long_polls "))


async def measure(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Build the file unless it is there, ask it, print and return the numbers."""
    results: dict[str, Any] = {}
    if not await asyncio.to_thread(path.exists):
        with agl_server(f"store.path={path}") as (url, pid):
            results["ingest"] = await build(url, pid, spans=options.spans, rollouts=options.rollouts)
        sys.stdout.write(f"ingest: {results['ingest']}\n")
    async with SqliteLightningStore(str(path)) as store:
        counts = await store.statistics()
        results["file"] = {
            "spans": counts["spans"],
            "megabytes": (await asyncio.to_thread(path.stat)).st_size / 1e6,
        }
        head = "".join(f"{f'{limit}: p50':>10}{'cpu':>8}{'p99':>9}{'found':>6}" for limit in LIMITS)
        sys.stdout.write(f"{results['file']}\n{'':42}{head}\n")
        results["queries"] = await measure_queries(store, options)
    async with InMemoryLightningStore() as store:
        results["sweep"] = await measure_sweeps(store)
    with agl_server("store=memory") as (url, pid):
        results["waiters"] = await measure_waiters(url, pid)
    sys.stdout.write(f"sweep of {LEASES} leases, none due: {results['sweep']}, budget {SWEEP_BUDGET_MS} ms\n")
    sys.stdout.write(f"claims: {results['waiters']}\n")
    return results


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--rollouts", type=int, default=50_000)
    parser.add_argument("--queries", type=int, default=50, help="how often each query is asked")
    parser.add_argument("--keep", type=Path, help="build this file, or use it as it is when it exists")
    parser.add_argument("--only", default="", help="queries whose name has this text")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    conditions = report.machine()
    with tempfile.TemporaryDirectory() as folder:
        results = asyncio.run(measure(options.keep or Path(folder) / "store.sqlite", options))
    if not options.only:
        report.write("store_scale", conditions, results)


if __name__ == "__main__":
    main()
