"""`kill -9` of the process that serves a store, again and again while 16 clients write, loses nothing acknowledged."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from store_servers import CommandServer, ForkedServer, Server, lasting_port, zygote
from store_writers import RUN, Facts, Writers, missing

from agl.store.client import LightningStoreClient
from agl.store.paging import iter_attempts, iter_rollouts, iter_spans
from agl.store.sqlite import SqliteLightningStore
from agl.types import AttemptQuery, SpanQuery

ROUNDS = 50
WRITERS = 16


async def test_fifty_kills_of_the_server_under_load_lose_nothing(tmp_path: Path) -> None:
    path, rng, writers = tmp_path / "store.sqlite", random.Random(50), Writers()
    port = lasting_port(rng)
    async with zygote() as process:
        cheap, command = ForkedServer(process, path, port), CommandServer(path, port)
        url = await cheap.start()
        clients = [LightningStoreClient(url, retry_seconds=120.0) for _ in range(WRITERS)]
        async with asyncio.TaskGroup() as group:
            for client in clients:
                await client.open()
            await clients[0].add_run(name="crashes", run_id=RUN)
            for number, client in enumerate(clients):
                group.create_task(writers.write(client, f"w{number}"))
            server: Server = cheap
            checked = Facts()
            for number in range(ROUNDS):
                await asyncio.sleep(rng.uniform(0.02, 0.35))
                facts = writers.facts.copy()  # acknowledged before the kill
                await server.kill()
                if number % 5 == 3:  # and once more while it starts
                    await cheap.start_to_start()
                    await asyncio.sleep(rng.uniform(0.0, 0.06))
                    await cheap.kill()
                server = command if number % 10 == 9 else cheap
                assert await server.start() == url
                writers.trace = f"{number + 1:032x}"
                assert await missing(clients[0], facts.since(checked)) == []
                checked = facts
            writers.stop = True
        await writers.drain(clients[0], "last")
        for client in clients:
            await client.close()
        await server.kill()
    assert len(writers.facts.rewards) > 10 * ROUNDS
    await check_the_file(path, writers.facts)


async def check_the_file(path: Path, facts: Facts) -> None:
    """All that was acknowledged is there, and nothing else."""
    async with SqliteLightningStore(str(path)) as store:
        assert await missing(store, facts) == []
        rollouts = {one.rollout_id async for one in iter_rollouts(store)}
        attempts = {one.attempt_id async for one in iter_attempts(store, AttemptQuery())}
        spans = {one.span_id async for one in iter_spans(store, SpanQuery())}
        assert (rollouts, attempts, spans) == (
            facts.tasks.keys(),
            set(facts.claims.values()),
            facts.spans.keys(),
        )
        counts = (await store.statistics())["rollouts"]
        assert {status: count for status, count in counts.items() if count} == {"succeeded": len(rollouts)}
