"""Measure what the proxy adds to a call: the same model server directly, behind agl's proxy, and behind LiteLLM's.

    python benchmarks/proxy.py [--peer-python PATH] [--only plain stream memory]

Model server, proxy and clients are processes; the model server answers at once (proxy_upstream.py), so all that is
measured is the proxy. agl's has its store in a SQLite file and answers no call before that is durable. LiteLLM's
(`litellm --config`, one worker) records nothing and asks for no token ids; agentlightning 0.3.0's, which is LiteLLM's,
does both, in memory. PATH is the interpreter of an environment with agentlightning 0.3.0 and litellm[proxy]. Variants
take turns, and the best round of each counts, so that a busy machine slows all of them.

- plain: calls of 128 tokens by 1 and by 32 clients at once. ``1 call each``: every call is the first of its attempt.
- stream: 32 words at once by 1 client, then 200 streams at once of 20 words a second each.
- memory: prompts of 16K tokens with their ids, and the proxy's memory while they are recorded.

Prints tables and writes benchmarks/results/proxy.json with machine, load and commit.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import report
from proxy_load import WARM_UP
from proxy_servers import Server, agentlightning_proxy, agl_proxy, litellm_proxy, loaded, model_server

FEW = 64
"""Attempts that make many calls each."""
STREAMS = 200
WORDS_A_SECOND = 20
LONG_PROMPT_TOKENS = 16_384
FILLING_CALLS = 6_000
"""Calls after which all that the proxy remembers of earlier ones is full, so that what grows then grows for ever."""
PEERS = ("litellm", "agentlightning")
PEER_SHARE = 20
"""They get so many times fewer calls, for they take so much longer."""
Numbers = dict[str, Any]
Table = dict[str, Numbers]
Serve = Callable[[str], AbstractContextManager[Server]]
"""Runs a proxy in front of the model server with this URL."""


def variants(options: argparse.Namespace, *, calls: int) -> dict[str, Serve]:
    """Return the proxies by name, for so many calls."""
    every = calls + calls // WARM_UP + 64
    found: dict[str, Serve] = {
        "agl": lambda url: agl_proxy(url, kind="endpoint", attempts=FEW),
        "agl, engine=external": lambda url: agl_proxy(url, kind="external", attempts=FEW),
        "agl, engine in process": lambda url: agl_proxy(url, kind="engine", attempts=FEW),
        "agl, 1 call each": lambda url: agl_proxy(url, kind="endpoint", attempts=every),
    }
    if options.peer_python:
        peer = options.peer_python
        found["litellm"] = lambda url: litellm_proxy(url, python=peer)
        found["agentlightning"] = lambda url: agentlightning_proxy(url, python=peer, attempts=FEW)
    return found


def best(rounds: list[Numbers]) -> Numbers:
    """Return, number by number, the best of some rounds: the largest rate, the shortest time."""
    merged: Numbers = {}
    for name, first in rounds[0].items():
        if not isinstance(first, list):
            values = [one[name] for one in rounds]
            merged[name] = round((max if "/s" in name else min)(values), 3)
    return merged


def plain(options: argparse.Namespace) -> Table:
    """Measure whole answers."""
    seen: dict[str, list[Numbers]] = {}
    for _ in range(options.rounds):
        with model_server(chunk_seconds=0.0) as upstream:
            for connections in (1, 32):
                order = {"connections": connections, "calls": options.calls}
                key = f"direct, {connections}"
                seen.setdefault(key, []).append(dict(loaded(upstream, **order)))
            for name, serve in variants(options, calls=2 * options.calls).items():
                with serve(upstream["root"]) as server:
                    share = PEER_SHARE if name in PEERS else 1
                    for connections in (1, 32):
                        order = {"connections": connections, "calls": max(64, options.calls // share)}
                        seen.setdefault(f"{name}, {connections}", []).append(dict(loaded(server, **order)))
    return {name: best(rounds) for name, rounds in seen.items()}


def stream(options: argparse.Namespace) -> Table:
    """Measure the first word's way, and many streams at once."""
    seen: dict[str, list[Numbers]] = {}
    one = {"connections": 1, "calls": max(50, options.calls // 5), "tokens": 32, "stream": True}
    many = {"connections": STREAMS, "calls": 2 * STREAMS, "tokens": options.words, "stream": True}
    chosen = ("agl", "litellm")
    for _ in range(options.rounds):
        for streams, order, chunk_seconds in ((1, one, 0.0), (STREAMS, many, 1 / WORDS_A_SECOND)):
            with model_server(chunk_seconds=chunk_seconds) as upstream:
                seen.setdefault(f"direct, {streams}", []).append(dict(loaded(upstream, **order)))
                for name, serve in variants(options, calls=0).items():
                    if name in chosen:
                        with serve(upstream["root"]) as server:
                            share = order | ({"calls": STREAMS} if streams > 1 else {"calls": 50})
                            told = loaded(server, **(share if name == "litellm" else order))
                            seen.setdefault(f"{name}, {streams}", []).append(dict(told))
    return {name: best(rounds) for name, rounds in seen.items()}


def memory(options: argparse.Namespace) -> Table:
    """Measure the proxy's memory over calls with long prompts."""
    order = {
        "connections": 8,
        "calls": options.long_calls,
        "prompt_bytes": 4 * LONG_PROMPT_TOKENS,
        "tokens": 32,
    }
    with (
        model_server(chunk_seconds=0.0) as upstream,
        agl_proxy(upstream["root"], kind="endpoint", attempts=FEW) as server,
    ):
        loaded(server, connections=32, calls=FILLING_CALLS)
        told = loaded(server, **order)
    held: list[float] = told["megabytes"]
    half = len(held) // 2
    # The two halves' slope, from the middle of one to the middle of the other.
    growth = (statistics.mean(held[half:]) - statistics.mean(held[:half])) / (options.long_calls / 2)
    return {
        "agl, 8": {
            "calls": options.long_calls,
            "MB at the start": held[0],
            "MB at the end": held[-1],
            "MB at most": max(held),
            "bytes a call": round(growth * 2**20, 1),
            "calls/s": round(told["calls/s"], 1),
            "CPU ms a call": round(told["CPU ms a call"], 3),
        }
    }


def summary(results: dict[str, Table]) -> dict[str, float]:
    """Return what the proxy promises, as measured."""
    told: dict[str, float] = {}
    plains, streams, memories = (results.get(kind, {}) for kind in ("plain", "stream", "memory"))
    if plains:
        told["added p50 ms, 1 client"] = plains["agl, 1"]["p50 ms"] - plains["direct, 1"]["p50 ms"]
        told["calls/s, 32 clients"] = plains["agl, 32"]["calls/s"]
        told["CPU ms a call, 32 clients"] = plains["agl, 32"]["CPU ms a call"]
        for name in PEERS:
            for clients in (1, 32):
                ours, theirs = plains[f"agl, {clients}"], plains.get(f"{name}, {clients}")
                if theirs:
                    faster = ours["calls/s"] / theirs["calls/s"]
                    cheaper = theirs["CPU ms a call"] / ours["CPU ms a call"]
                    told[f"times {name}'s calls/s, {clients} clients"] = faster
                    told[f"{name}'s CPU a call / ours, {clients} clients"] = cheaper
    if streams:
        first = "first word p50 ms"
        told["added ms to the first word, p50"] = streams["agl, 1"][first] - streams["direct, 1"][first]
        ours = streams[f"agl, {STREAMS}"]
        told[f"slowest of {STREAMS} streams, words/s of {WORDS_A_SECOND}"] = ours["slowest stream, words/s"]
        told["CPU us a streamed word"] = ours["CPU us a word"]
    if memories:
        told["bytes a call that stay"] = memories["agl, 8"]["bytes a call"]
    return {name: round(value, 3) for name, value in told.items()}


def show(table: Table) -> None:
    """Print one line a variant, one column a number."""
    columns = list(dict.fromkeys(name for row in table.values() for name in row))
    print(f"{'':26}" + "".join(f"{name:>{len(name) + 2}}" for name in columns))
    for variant, row in table.items():
        cells = (
            f"{row[name]:>{len(name) + 2}.2f}" if name in row else " " * (len(name) + 2) for name in columns
        )
        print(f"{variant:26}" + "".join(cells))


MEASURES = {"plain": plain, "stream": stream, "memory": memory}


def main() -> None:
    """Measure, print the tables, write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer-python", help="interpreter of an environment with the peers")
    parser.add_argument("--only", nargs="+", choices=list(MEASURES), default=list(MEASURES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=1500, help="of a round")
    parser.add_argument("--words", type=int, default=100, help="of each of many streams")
    parser.add_argument(
        "--long-calls", type=int, default=2000, help="with long prompts; 100000 takes 15 GB of disk"
    )
    options = parser.parse_args()
    conditions = report.machine()
    results: dict[str, Table] = {}
    for kind in options.only:
        results[kind] = MEASURES[kind](options)
        print(f"\n{kind}: variant, clients at once")
        show(results[kind])
    told = summary(results)
    print()
    for name, value in told.items():
        print(f"{name:50}{value:12,.3f}")
    given = {name: getattr(options, name) for name in ("rounds", "calls", "words", "long_calls")}
    report.write("proxy", conditions | {"options": given}, {"summary": told, **results})


if __name__ == "__main__":
    main()
