"""Measure the processor time of one small call: our client's connections beside httpx's and httpcore's.

    python benchmarks/store_client.py [--calls 4000]

All send the same GET of /v1/health to an `agl store` process and read the answer; time is this process's alone, so that
the server and other programs on the machine do not count. Prints a table, writes benchmarks/results/store_client.json.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpcore
import httpx
import report
from store import agl_server

from agl.http.address import dialer
from agl.http.connections import Connections
from agl.http.parsing import FastParser, Parser, PlainParser
from agl.launch.event_loop import loop_factory
from agl.store.client import HttpStore
from agl.store.client.address import address_from

Call = Callable[[], Awaitable[object]]
SIDE_BY_SIDE = (1, 8, 64)
ROUNDS = 3


@asynccontextmanager
async def by_httpx(url: str) -> AsyncGenerator[Call]:
    """One httpx client, its pool as large as it is asked."""
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
    async with httpx.AsyncClient(limits=limits) as client:
        yield lambda: client.get(f"{url}/v1/health")


@asynccontextmanager
async def by_httpcore(url: str) -> AsyncGenerator[Call]:
    """The pool of httpcore, without httpx on top."""
    async with httpcore.AsyncConnectionPool(max_connections=64, max_keepalive_connections=64) as pool:
        yield lambda: pool.request("GET", f"{url}/v1/health")


def by_connections(make_parser: Callable[[], Parser]) -> Callable[[str], object]:
    """Our connections with a parser, nothing on top."""

    @asynccontextmanager
    async def opened(url: str) -> AsyncGenerator[Call]:
        address = address_from(url)
        connections = Connections(dialer(address), make_parser)
        request = f"GET /v1/health HTTP/1.1\r\nhost: {address.authority}\r\n\r\n".encode()
        yield lambda: connections.exchange(request, seconds=30)
        connections.close()

    return opened


@asynccontextmanager
async def by_store(url: str) -> AsyncGenerator[Call]:
    """The client store whole: retries, identity, the answer decoded."""
    async with HttpStore(url) as store:
        yield store.health


WAYS = {
    "httpx": by_httpx,
    "httpcore pool": by_httpcore,
    "connections, h11": by_connections(PlainParser),
    "connections, httptools": by_connections(FastParser),
    "LightningStoreClient": by_store,
}


async def microseconds(call: Call, num_calls: int, side_by_side: int) -> float:
    """Return the processor time of a call in microseconds, the best of some rounds."""

    async def some(count: int) -> None:
        for _ in range(count):
            await call()

    best = float("inf")
    for _ in range(ROUNDS + 1):  # the first round opens the connections
        began = time.process_time()
        each = num_calls // side_by_side
        await asyncio.gather(*(some(each) for _ in range(side_by_side)))
        best = min(best, (time.process_time() - began) / (each * side_by_side) * 1e6)
    return round(best, 1)


async def measured(url: str, num_calls: int) -> dict[str, dict[str, float]]:
    """Return for each way the microseconds a call, by the number of calls side by side."""
    results: dict[str, dict[str, float]] = {}
    for name, way in WAYS.items():
        async with way(url) as call:  # pyright: ignore[reportGeneralTypeIssues]
            results[name] = {
                str(side_by_side): await microseconds(call, num_calls, side_by_side)
                for side_by_side in SIDE_BY_SIDE
            }
    return results


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=4000)
    arguments = parser.parse_args()
    conditions = report.machine()
    with agl_server("store=memory") as (url, _), asyncio.Runner(loop_factory=loop_factory()) as runner:
        results = runner.run(measured(url, arguments.calls))
    print(f"{'processor time a call, us':26}" + "".join(f"{count:>4} at once" for count in SIDE_BY_SIDE))
    for name, times in results.items():
        print(f"{name:26}" + "".join(f"{times[str(count)]:12.1f}" for count in SIDE_BY_SIDE))
    report.write("store_client", conditions, {"microseconds_a_call": results})


if __name__ == "__main__":
    main()
