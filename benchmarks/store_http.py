"""The work of benchmarks/store.py over HTTP: many clients in one process, against an `agl store` of another.

    python store_http.py URL SERVER_PID --clients 8 --lifecycles 800 --spans 20000 --batch 200

Each lifecycle is a rollout enqueued, claimed, given 8 spans in one call and reported, all by one client. Prints its
numbers as JSON. The processor time of both sides depends less on what else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import psutil
from report import milliseconds

from agl.launch.event_loop import loop_factory
from agl.store.base import LightningStore
from agl.store.client import LightningStoreClient
from agl.types import RolloutQuery, RolloutRequest, Span, SpanQuery

T = TypeVar("T")
SPANS_A_ROLLOUT = 8
WAKES = 100
QUERIES = 200

_numbers = itertools.count()


def new_span(rollout_id: str, attempt_id: str) -> Span:
    """Return a span of the size of a small recorded call, about 700 bytes of attributes."""
    number = next(_numbers)
    return Span(
        span_id=f"{number:016x}",
        trace_id=f"{os.getpid():016x}{number // SPANS_A_ROLLOUT:016x}",
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


async def rate(count: int, callers: int, work: Callable[[int], Awaitable[object]]) -> float:
    """Return how often a second that many callers get the work done, ``count`` times in all."""
    numbers = iter(range(count))

    async def caller(index: int) -> None:
        for _ in numbers:
            await work(index)

    start = time.perf_counter()
    await asyncio.gather(*(caller(index) for index in range(callers)))
    return count / (time.perf_counter() - start)


class Calls:
    """A store whose calls are timed."""

    def __init__(self, store: LightningStore) -> None:
        self.store = store
        self.seconds: dict[str, list[float]] = {}

    async def timed(self, name: str, call: Awaitable[T]) -> T:
        """Await a call and note how long it took."""
        start = time.perf_counter()
        answer = await call
        self.seconds.setdefault(name, []).append(time.perf_counter() - start)
        return answer

    async def lifecycle(self, index: int) -> None:
        """Take one rollout from the queue's end to its reward."""
        request = RolloutRequest(task={"question": "how many?"}, run_id="run")
        await self.timed("enqueue", self.store.enqueue_rollout(request))
        held = await self.timed("dequeue", self.store.dequeue_rollout(worker_id=f"worker-{index}"))
        assert held is not None, "one was enqueued for each that is claimed"
        rollout_id, attempt_id = held.rollout.rollout_id, held.attempt.attempt_id
        spans = [new_span(rollout_id, attempt_id) for _ in range(SPANS_A_ROLLOUT)]
        await self.timed(f"{SPANS_A_ROLLOUT} spans", self.store.add_many_spans(spans))
        await self.timed(
            "report", self.store.update_attempt(rollout_id, attempt_id, status="succeeded", reward=1.0)
        )

    async def read(self, rollout_id: str) -> None:
        """Ask what a dashboard asks of one rollout."""
        await self.timed("read a rollout", self.store.get_rollout_by_id(rollout_id))
        await self.timed("read its spans", self.store.query_spans(SpanQuery(rollout_id=rollout_id)))

    async def wake(self, index: int) -> None:
        """Time how soon a waiting claim comes back after an enqueue, and a wait after the last report.

        From before the call that ends the wait is sent to after the waiter has its answer.
        """
        run_id = f"wake-{index}"
        claim = asyncio.create_task(
            self.store.dequeue_rollout(worker_id=run_id, wait_seconds=30.0, run_id=run_id)
        )
        await asyncio.sleep(0.02)  # the claim waits at the server
        start = time.perf_counter()
        await self.store.enqueue_rollout(RolloutRequest(task={}, run_id=run_id))
        held = await claim
        self.seconds.setdefault("wake a claim", []).append(time.perf_counter() - start)
        assert held is not None
        wait = asyncio.create_task(
            self.store.wait_for_rollouts([held.rollout.rollout_id], timeout_seconds=30.0)
        )
        await asyncio.sleep(0.02)
        start = time.perf_counter()
        await self.store.update_attempt(
            held.rollout.rollout_id, held.attempt.attempt_id, status="succeeded", reward=1.0
        )
        await wait
        self.seconds.setdefault("wake a wait", []).append(time.perf_counter() - start)


@contextmanager
def processor_time(server: psutil.Process, what: str, count: int, results: dict[str, Any]) -> Generator[None]:
    """Add what the block costs both processes, in microseconds for one of so many."""
    own, other = time.process_time(), server.cpu_times()
    yield
    results[f"client CPU microseconds a {what}"] = (time.process_time() - own) / count * 1e6
    now = server.cpu_times()
    spent = now.user + now.system - other.user - other.system
    results[f"server CPU microseconds a {what}"] = spent / count * 1e6


async def work(options: argparse.Namespace) -> dict[str, Any]:
    """Do the work and return its numbers."""
    results: dict[str, Any] = {}
    server = psutil.Process(options.server_pid)
    async with LightningStoreClient(options.url) as store:
        calls = Calls(store)
        await rate(options.clients, options.clients, calls.lifecycle)  # connections and code are warm
        calls.seconds.clear()
        with processor_time(server, "lifecycle", options.lifecycles, results):
            results["lifecycles/s"] = await rate(options.lifecycles, options.clients, calls.lifecycle)
        held = await store.start_rollout(RolloutRequest(task={}))
        rollout_id, attempt_id = held.rollout.rollout_id, held.attempt.attempt_id
        count = max(1, options.spans // options.batch)
        batches = [[new_span(rollout_id, attempt_id) for _ in range(options.batch)] for _ in range(count)]
        gc.freeze()  # the spans are the load, not the work
        with processor_time(server, "span", count * options.batch, results):
            results["spans/s"] = options.batch * await rate(
                count, options.clients, lambda _: store.add_many_spans(batches.pop())
            )
        page = await store.query_rollouts(RolloutQuery(run_id="run", status=("succeeded",)))
        ids = itertools.cycle([rollout.rollout_id for rollout in page.items])
        await rate(QUERIES, 1, lambda _: calls.read(next(ids)))
        await rate(WAKES, 1, calls.wake)
    results["milliseconds"] = {name: milliseconds(times) for name, times in calls.seconds.items()}
    return results


def main() -> None:
    """Work and print the numbers as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("server_pid", type=int)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--lifecycles", type=int, default=800)
    parser.add_argument("--spans", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=200)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        sys.stdout.write(json.dumps(runner.run(work(options))) + "\n")


if __name__ == "__main__":
    main()
