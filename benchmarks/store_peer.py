"""agentlightning 0.3.0's side of benchmarks/store.py: its server, and clients that do the same work as ours.

Run by the peer's own interpreter; imports nothing of agl. Lifecycles come in the ways its API offers for spans:

- ``single``: what ``LightningStoreClient.add_otel_span`` sends: a number for the span, then the span.
- ``many``: ``LightningStoreClient.add_many_spans``, spans numbered by the caller: a request for each.
- ``tracer``: what its own tracer does over HTTP: an OTLP request for each span as it ends.
- ``otlp``: one OTLP request for all spans. Its client has no such call; it is what its server can do at best.

    python store_peer.py serve PORT
    python store_peer.py work URL --clients 8 --lifecycles 80 --spans 400 --batch 200
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import aiohttp
from agentlightning.store.client_server import LightningStoreClient, LightningStoreServer
from agentlightning.store.memory import InMemoryLightningStore
from agentlightning.types import OtelResource, Span, TraceStatus
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SPANS_A_ROLLOUT = 8
WAYS = ("single", "many", "tracer", "otlp")
ATTRIBUTES: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "policy",
    "gen_ai.request.temperature": 1.0,
    "gen_ai.usage.input_tokens": 60,
    "gen_ai.usage.output_tokens": 20,
    "agl.policy_version": 3,
    "agl.prompt_token_ids": "AAAA" * 80,
    "agl.response_token_ids": "AAAA" * 27,
    "agl.response_logprobs": "AAAA" * 27,
}
"""The same as in store_http.py."""

_numbers = itertools.count()


def serve(port: int) -> None:
    """Serve a store in memory, as ``agl store`` of the peer does."""
    server = LightningStoreServer(
        InMemoryLightningStore(thread_safe=True), host="127.0.0.1", port=port, launch_mode="asyncio"
    )
    asyncio.run(server.run_forever())


def new_span(rollout_id: str, attempt_id: str, sequence_id: int) -> Span:
    """Return a span of a small recorded call."""
    number = next(_numbers)
    return Span(
        rollout_id=rollout_id,
        attempt_id=attempt_id,
        sequence_id=sequence_id,
        trace_id=f"{os.getpid():016x}{number // SPANS_A_ROLLOUT:016x}",
        span_id=f"{number:016x}",
        parent_id=None,
        name="chat policy",
        status=TraceStatus(status_code="OK"),
        attributes=dict(ATTRIBUTES),
        events=[],
        links=[],
        start_time=time.time(),
        end_time=time.time(),
        context=None,
        parent=None,
        resource=OtelResource(attributes={}, schema_url=""),
    )


def otlp_body(rollout_id: str, attempt_id: str, count: int) -> bytes:
    """Return an OTLP request with that many spans of an attempt."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    for key, text in (
        ("agentlightning.rollout_id", rollout_id),
        ("agentlightning.attempt_id", attempt_id),
    ):
        group.resource.attributes.add(key=key).value.string_value = text
    scope = group.scope_spans.add()
    for _ in range(count):
        number, now = next(_numbers), time.time_ns()
        span = scope.spans.add(
            trace_id=os.getpid().to_bytes(8, "big") + (number // SPANS_A_ROLLOUT).to_bytes(8, "big"),
            span_id=number.to_bytes(8, "big"),
            name="chat policy",
            start_time_unix_nano=now,
            end_time_unix_nano=now,
        )
        span.status.code = 1
        for key, value in ATTRIBUTES.items():
            field = {str: "string_value", int: "int_value", float: "double_value"}[type(value)]
            setattr(span.attributes.add(key=key).value, field, value)
    return request.SerializeToString()


class Peer:
    """A client of the peer's server with its calls timed."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.client = LightningStoreClient(url)
        self._session = session
        self.seconds: dict[str, list[float]] = {}

    async def timed(self, name: str, call: Awaitable[Any]) -> Any:
        """Await a call and note how long it took."""
        start = time.perf_counter()
        answer = await call
        self.seconds.setdefault(name, []).append(time.perf_counter() - start)
        return answer

    async def post_otlp(self, body: bytes) -> None:
        """Deliver spans by OTLP."""
        headers = {"Content-Type": "application/x-protobuf"}
        async with self._session.post(
            self.client.otlp_traces_endpoint(), data=body, headers=headers
        ) as answer:
            answer.raise_for_status()

    async def add_spans(self, way: str, rollout_id: str, attempt_id: str, count: int) -> None:
        """Add spans in one of the ways."""
        if way == "single":
            for _ in range(count):
                number = await self.client.get_next_span_sequence_id(rollout_id, attempt_id)
                await self.client.add_span(new_span(rollout_id, attempt_id, number))
        elif way == "many":
            spans = [new_span(rollout_id, attempt_id, number + 1) for number in range(count)]
            await self.client.add_many_spans(spans)
        elif way == "otlp":
            await self.post_otlp(otlp_body(rollout_id, attempt_id, count))
        else:
            for _ in range(count):
                await self.post_otlp(otlp_body(rollout_id, attempt_id, 1))

    async def lifecycle(self, way: str, worker_id: str) -> None:
        """Take one rollout from the queue's end to its report."""
        await self.timed("enqueue", self.client.enqueue_rollout({"question": "how many?"}, mode="train"))
        held = await self.timed("dequeue", self.client.dequeue_rollout(worker_id=worker_id))
        assert held is not None, "one was enqueued for each that is claimed"
        rollout_id, attempt_id = held.rollout_id, held.attempt.attempt_id
        await self.timed(
            f"{SPANS_A_ROLLOUT} spans", self.add_spans(way, rollout_id, attempt_id, SPANS_A_ROLLOUT)
        )
        await self.timed(
            "report",
            self.client.update_attempt(rollout_id, attempt_id, status="succeeded", worker_id=worker_id),
        )


async def rate(count: int, callers: int, work: Callable[[int], Awaitable[None]]) -> float:
    """Return how often a second that many callers get the work done, ``count`` times in all."""
    numbers = iter(range(count))

    async def caller(index: int) -> None:
        for _ in numbers:
            await work(index)

    start = time.perf_counter()
    await asyncio.gather(*(caller(index) for index in range(callers)))
    return count / (time.perf_counter() - start)


async def work(options: argparse.Namespace) -> dict[str, Any]:
    """Do the work and return its numbers."""
    results: dict[str, Any] = {}
    async with aiohttp.ClientSession() as session:
        for way in options.ways:
            peer = Peer(options.url, session)
            results[f"lifecycles/s, {way}"] = await rate(
                options.lifecycles,
                options.clients,
                lambda n, peer=peer, way=way: peer.lifecycle(way, f"w{n}"),
            )
            results[f"milliseconds, {way}"] = {
                name: percentiles(times) for name, times in peer.seconds.items()
            }
            held = await peer.client.start_rollout({"question": "how many?"}, worker_id="w")
            rollout_id, attempt_id = held.rollout_id, held.attempt.attempt_id
            if way == "otlp":
                batch, batches = options.batch, max(options.clients, options.spans // options.batch)
            else:  # a request a span: each client its share
                batch, batches = max(1, options.spans // options.clients), options.clients
            add = partial(peer.add_spans, way, rollout_id, attempt_id, batch)
            added = await rate(batches, options.clients, lambda _, add=add: add())
            results[f"spans/s, {way}"] = batch * added
            await peer.client.close()
    return results


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Return the median and the 99th percentile in milliseconds."""
    ordered = sorted(seconds)
    return {
        "p50": round(ordered[len(ordered) // 2] * 1e3, 2),
        "p99": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1e3, 2),
    }


def main() -> None:
    """Serve, or work and print the numbers as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve").add_argument("port", type=int)
    worker = commands.add_parser("work")
    worker.add_argument("url")
    worker.add_argument("--clients", type=int, default=8)
    worker.add_argument("--lifecycles", type=int, default=80)
    worker.add_argument("--spans", type=int, default=400)
    worker.add_argument("--batch", type=int, default=200)
    worker.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    options = parser.parse_args()
    if options.command == "serve":
        serve(options.port)
    else:
        sys.stdout.write(json.dumps(asyncio.run(work(options))) + "\n")


if __name__ == "__main__":
    main()
