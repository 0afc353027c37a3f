"""Measure the stores: rollout lifecycles and spans a second, in process and over HTTP, beside agentlightning's.

    python benchmarks/store.py [--peer-python PATH] [--mongo URL]

A lifecycle is enqueue, dequeue, 8 spans in one call and the final report, by many callers at once. Over HTTP the server
is an `agl store` process and the clients are in another (store_http.py). PATH is the interpreter of an environment with
agentlightning 0.3.0 (python -m venv peer; peer/bin/pip install agentlightning==0.3.0), whose server and clients do the
same work (store_peer.py). Both sides take turns and the best round of each counts, so that a busy machine slows both.
Prints tables and writes benchmarks/results/store.json with machine, load and commit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import report
from store_http import SPANS_A_ROLLOUT, new_span, rate

from agl.store.base import LightningStore
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.types import RolloutQuery, RolloutRequest, SpanQuery

CALLERS = 64
CLIENTS = (8, 64)
LIFECYCLES = 6_000
SPANS = 60_000
SPAN_BATCH = 200
QUERIES = 200
PEER_WAYS = ("single", "many", "tracer", "otlp")
FOLDER = Path(__file__).parent


async def lifecycle(store: LightningStore, worker_id: str, *, single_spans: bool = False) -> None:
    """Take one rollout from the queue's end to its reward."""
    await store.enqueue_rollout(RolloutRequest(task={"question": "how many?"}, run_id="run"))
    held = await store.dequeue_rollout(worker_id=worker_id)
    assert held is not None, "one was enqueued for each that is claimed"
    rollout_id, attempt_id = held.rollout.rollout_id, held.attempt.attempt_id
    spans = [new_span(rollout_id, attempt_id) for _ in range(SPANS_A_ROLLOUT)]
    if single_spans:
        for span in spans:
            await store.add_span(span)
    else:
        await store.add_many_spans(spans)
    await store.update_attempt(rollout_id, attempt_id, status="succeeded", reward=1.0)


async def in_process(store: LightningStore) -> dict[str, float]:
    """Return the numbers of a store in this process."""
    results: dict[str, float] = {}
    cpu = time.process_time()
    results["lifecycles/s"] = await rate(LIFECYCLES, CALLERS, lambda n: lifecycle(store, f"worker-{n}"))
    # Does not depend on what else the machine is doing; includes making the spans, about 30.
    results["CPU microseconds a lifecycle"] = (time.process_time() - cpu) / LIFECYCLES * 1e6
    results["lifecycles/s, spans one by one"] = await rate(
        LIFECYCLES // 4, CALLERS, lambda n: lifecycle(store, f"worker-{n}", single_spans=True)
    )
    results["lifecycles/s, 1 caller"] = await rate(LIFECYCLES // 8, 1, lambda _: lifecycle(store, "worker"))
    held = await store.start_rollout(RolloutRequest(task={}))
    key = (held.rollout.rollout_id, held.attempt.attempt_id)
    batches = [[new_span(*key) for _ in range(SPAN_BATCH)] for _ in range(SPANS // SPAN_BATCH)]
    cpu = time.process_time()
    results["spans/s, batches of 200"] = SPAN_BATCH * await rate(
        len(batches), 8, lambda _: store.add_many_spans(batches.pop())
    )
    results["CPU microseconds a span"] = (time.process_time() - cpu) / SPANS * 1e6
    ids = [rollout.rollout_id for rollout in (await store.query_rollouts(RolloutQuery(limit=QUERIES))).items]
    results["span queries of one rollout/s"] = await rate(
        QUERIES, 4, lambda n: store.query_spans(SpanQuery(rollout_id=ids[n % len(ids)]))
    )
    return results


async def in_process_table() -> dict[str, dict[str, float]]:
    """Measure both stores of this process."""
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        stores = {
            "memory": InMemoryLightningStore(),
            "file": SqliteLightningStore(str(Path(folder) / "store.sqlite")),
        }
        for name, store in stores.items():
            async with store:
                results[name] = await in_process(store)
    return results


@contextmanager
def agl_server(*settings: str) -> Generator[tuple[str, int]]:
    """Run an `agl store` and yield its URL and process id."""
    command = [sys.executable, "-m", "agl", "store", "--port", "0", *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            first = server.stdout.readline().split()
            assert first[:3] == ["agl", "store", "serves"], first
            yield first[3], server.pid
        finally:
            server.terminate()


@contextmanager
def peer_server(python: str) -> Generator[str]:
    """Run agentlightning's server and yield its URL once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [python, str(FOLDER / "store_peer.py"), "serve", str(port)]
    with subprocess.Popen(
        command, env=_peer_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            _await_answer(f"{url}/v1/agl/health")
            yield url
        finally:
            server.terminate()


def _peer_environment() -> dict[str, str]:
    return {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # else its import asks the internet


def _await_answer(url: str) -> None:
    until = time.monotonic() + 120.0
    while True:
        try:
            urllib.request.urlopen(url, timeout=5.0).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return


def worked(command: list[str]) -> dict[str, Any]:
    """Run clients to their end and return the numbers that they print."""
    done = subprocess.run(command, env=_peer_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measured_over_http(url: str, pid: int, clients: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the numbers of one round of clients."""
    work = [sys.executable, str(FOLDER / "store_http.py"), url, str(pid), "--clients", str(clients)]
    return worked([*work, "--lifecycles", str(options.lifecycles), "--spans", str(options.spans)])


def measured_peer(python: str, url: str, clients: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the numbers of one round of the peer's clients; it gets a fraction of the work, for it takes long."""
    work = [python, str(FOLDER / "store_peer.py"), "work", url, "--clients", str(clients)]
    rollouts, spans = max(clients, options.lifecycles // 20), max(clients, options.spans // 25)
    return worked([*work, "--lifecycles", str(rollouts), "--spans", str(spans), "--ways", *PEER_WAYS])


def best(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return, number by number, the best of some rounds: the largest rate, the shortest time."""
    merged: dict[str, Any] = {}
    for name, first in rounds[0].items():
        values = [one[name] for one in rounds]
        if isinstance(first, dict):
            merged[name] = best(values)
        else:
            merged[name] = max(values) if "/s" in name else min(values)
    return merged


def over_http(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Measure served stores, and the peer's beside that in memory."""
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        stores = {"memory": ["store=memory"], "file": [f"store.path={folder}/store.sqlite"]}
        if options.mongo:
            stores["mongo"] = ["store=mongo", f"store.url={options.mongo}", "store.database=agl_benchmark"]
        for name, settings in stores.items():
            for clients in CLIENTS:
                ours: list[dict[str, Any]] = []
                peers: list[dict[str, Any]] = []
                for _ in range(options.rounds):
                    if options.peer_python and name == "memory":
                        with peer_server(options.peer_python) as url:
                            peers.append(measured_peer(options.peer_python, url, clients, options))
                    with agl_server(*settings) as (url, pid):
                        ours.append(measured_over_http(url, pid, clients, options))
                results[f"{name}, {clients} clients"] = best(ours)
                if peers:
                    results[f"agentlightning, {clients} clients"] = best(peers)
    return results


def ratios(table: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return how many times the peer's rates the store in memory makes."""
    found: dict[str, float] = {}
    for clients in CLIENTS:
        peer = table.get(f"agentlightning, {clients} clients", {})
        ours = table[f"memory, {clients} clients"]
        for name, value in peer.items():
            if not isinstance(value, dict):
                rate_name = name.partition(",")[0]
                found[f"{name}, {clients} clients"] = round(ours[rate_name] / value, 1)
    return found


def show(table: dict[str, dict[str, Any]]) -> None:
    """Print one line a number, one column a store."""
    rows: dict[str, dict[str, float]] = {}
    for store, numbers in table.items():
        for name, value in numbers.items():
            flat = value.items() if isinstance(value, dict) else [("", value)]
            for part, number in flat:
                spread = number.items() if isinstance(number, dict) else [("", number)]
                for unit, one in spread:
                    rows.setdefault(" ".join(filter(None, (name, part, unit))), {})[store] = one
    width = max(map(len, rows))
    stores = list(table)
    sys.stdout.write(f"{'':{width}}{''.join(f'{store:>27}' for store in stores)}\n")
    for name, row in rows.items():
        numbers = "".join(f"{row[store]:27,.2f}" if store in row else " " * 27 for store in stores)
        sys.stdout.write(f"{name:{width}}{numbers}\n")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer-python", help="interpreter of an environment with agentlightning 0.3.0")
    parser.add_argument("--mongo", help="URL of a MongoDB server; the database agl_benchmark is written")
    parser.add_argument("--lifecycles", type=int, default=4_000, help="of a round over HTTP")
    parser.add_argument("--spans", type=int, default=60_000, help="of a round over HTTP")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    conditions = report.machine()
    local = asyncio.run(in_process_table())
    show(local)
    served = over_http(options)
    show(served)
    compared = ratios(served)
    for name, ratio in compared.items():
        sys.stdout.write(f"{ratio:8,.1f} times agentlightning's {name}\n")
    results = {"in process": local, "over HTTP": served, "times agentlightning": compared}
    report.write("store", conditions, results)


if __name__ == "__main__":
    main()
