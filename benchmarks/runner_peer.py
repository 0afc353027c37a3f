"""agentlightning 0.3.0's side of benchmarks/runner.py: its runner, a process for each rollout at once, over HTTP.

Run by the peer's own interpreter; imports nothing of agl. Its lighter tracer is used, and the queue is full before a
runner begins, so that its polling (5 s) costs it nothing.

    python runner_peer.py work URL --sleep 0      says "ready", begins at a line of standard input, ends at the next
    python runner_peer.py enqueue URL COUNT
    python runner_peer.py finished URL COUNT      seconds from the first start to the last end, once all have ended
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
from typing import Any

from agentlightning.litagent import LitAgent
from agentlightning.runner import LitAgentRunner
from agentlightning.store.client_server import LightningStoreClient
from agentlightning.tracer.otel import OtelTracer
from agentlightning.types import EnqueueRolloutRequest, PromptTemplate


class Agent(LitAgent[Any]):
    """Does nothing, for as long as it is told."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    async def rollout_async(self, task: Any, resources: Any, rollout: Any) -> float:
        """Return a reward."""
        del resources, rollout
        if self.seconds:
            await asyncio.sleep(self.seconds)
        return float(task["n"])


def work(url: str, seconds: float) -> None:
    """Be one runner."""
    runner: LitAgentRunner[Any] = LitAgentRunner(tracer=OtelTracer())
    with runner.run_context(agent=Agent(seconds), store=LightningStoreClient(url)):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        stop = threading.Event()

        def follow() -> None:
            sys.stdin.readline()
            stop.set()

        threading.Thread(target=follow, daemon=True).start()
        asyncio.run(runner.iter(event=stop))


async def enqueue(url: str, count: int) -> None:
    """Fill the queue."""
    client = LightningStoreClient(url)
    await client.add_resources({"prompt": PromptTemplate(template="how many?", engine="f-string")})
    await client.enqueue_many_rollouts([EnqueueRolloutRequest(input={"n": n}) for n in range(count)])
    await client.close()


async def finished(url: str, count: int) -> float:
    """Wait for the end of all; return the seconds that they took."""
    client = LightningStoreClient(url)
    while True:
        rollouts = await client.query_rollouts(status_in=["succeeded", "failed"], limit=count)
        if len(rollouts) >= count:
            break
        await asyncio.sleep(0.25)
    assert all(rollout.status == "succeeded" for rollout in rollouts)
    attempts = [await client.get_latest_attempt(rollout.rollout_id) for rollout in rollouts]
    await client.close()
    begins = [attempt.start_time for attempt in attempts if attempt is not None]
    ends = [attempt.end_time for attempt in attempts if attempt is not None and attempt.end_time is not None]
    return max(ends) - min(begins)


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    worker = commands.add_parser("work")
    worker.add_argument("url")
    worker.add_argument("--sleep", type=float, default=0.0)
    for name in ("enqueue", "finished"):
        command = commands.add_parser(name)
        command.add_argument("url")
        command.add_argument("count", type=int)
    options = parser.parse_args()
    if options.command == "work":
        work(options.url, options.sleep)
    elif options.command == "enqueue":
        asyncio.run(enqueue(options.url, options.count))
    else:
        sys.stdout.write(json.dumps(asyncio.run(finished(options.url, options.count))) + "\n")


if __name__ == "__main__":
    main()
