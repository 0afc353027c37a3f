"""`kill -9` of the process that serves a store, again and again while 16 clients write, loses nothing acknowledged."""

from __future__ import annotations

import asyncio
import random
import resource
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from mongo_server import mongo_server
from store_servers import CommandServer, ForkedServer, Server, lasting_port, zygote
from store_writers import RUN, Facts, Writers, missing

from agl.cli.store.backup import appearing_whole, download
from agl.errors import NotFoundError, StoreUnavailableError
from agl.store.base import LightningStore
from agl.store.client import LightningStoreClient
from agl.store.mongo import MongoLightningStore
from agl.store.paging import iter_attempts, iter_rollouts, iter_spans
from agl.store.sqlite import SqliteLightningStore
from agl.types import AttemptQuery, RolloutRequest, Span, SpanQuery

ROUNDS = 50
HANGS_SECONDS = 20.0


async def test_fifty_kills_of_the_server_under_load_lose_nothing(tmp_path: Path) -> None:
    path, rng = tmp_path / "store.sqlite", random.Random(50)
    port = lasting_port(rng)
    async with zygote() as process:
        servers: dict[int, Server] = {
            9: CommandServer(path, port),
            19: CommandServer(path, port, signal.SIGTERM),  # one that has time to close loses nothing, either
        }
        cheap = ForkedServer(process, path, port)
        facts = await killed_under_load(
            lambda number: servers.get(number % 20, cheap),
            rounds=ROUNDS,
            num_writers=16,
            rng=rng,
            load_seconds=0.35,
        )
    assert len(facts.rewards) > ROUNDS, "there was load"
    async with SqliteLightningStore(str(path)) as store:
        await check_all(store, facts)


async def test_kills_of_a_server_over_mongo_lose_nothing() -> None:
    mongo, rng = mongo_server(), random.Random(8)
    mongo.clear()
    async with zygote() as process:
        server = ForkedServer(process, mongo.url, lasting_port(rng))
        facts = await killed_under_load(lambda _: server, rounds=8, num_writers=6, rng=rng, load_seconds=1.5)
    async with MongoLightningStore(mongo.url, journal=False) as store:
        await check_all(store, facts)


async def killed_under_load(
    server_of: Callable[[int], Server],
    *,
    rounds: int,
    num_writers: int,
    rng: random.Random,
    load_seconds: float,
) -> Facts:
    """Kill a server again and again while clients write, and check each time what they were told until then.

    Args:
        server_of: what serves in the round of that number.
        rounds: how often it is killed.
        num_writers: clients at once.
        rng: chooses the moments.
        load_seconds: the longest time of a round.
    """
    writers, server = Writers(), server_of(0)
    url = await server.start()
    clients = [LightningStoreClient(url, retry_seconds=120.0) for _ in range(num_writers)]
    for client in clients:
        await client.open()
    await clients[0].add_run(name="crashes", run_id=RUN)
    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(clients):
            group.create_task(writers.write(client, f"w{number}"))
        checked = Facts()
        for number in range(1, rounds + 1):
            await asyncio.sleep(rng.uniform(0.02, load_seconds))
            facts = writers.facts.copy()  # acknowledged before the kill
            await server.end()
            server = server_of(number)
            if number % 5 == 2:  # and once more while it starts
                await server.start_to_start()
                await asyncio.sleep(rng.uniform(0.0, 0.06))
                await server.end()
            assert await server.start() == url
            writers.trace = f"{number:032x}"
            assert await missing(clients[0], facts.since(checked)) == []
            checked = facts
        writers.stop = True
    await writers.drain(clients[0], "last")
    for client in clients:
        await client.close()
    await server.end()
    return writers.facts


async def check_all(store: LightningStore, facts: Facts) -> None:
    """All that was acknowledged is there, and nothing else."""
    assert await missing(store, facts) == []
    rollouts = {one.rollout_id async for one in iter_rollouts(store)}
    attempts = {one.attempt_id async for one in iter_attempts(store, AttemptQuery())}
    spans = {one.span_id async for one in iter_spans(store, SpanQuery())}
    assert (rollouts, attempts, spans) == (facts.tasks.keys(), set(facts.claims.values()), facts.spans.keys())
    counts = (await store.statistics())["rollouts"]
    assert {status: count for status, count in counts.items() if count} == {"succeeded": len(rollouts)}


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 100,000 spans, half of them the run ``gone``'s and half ``kept``'s, made by a process that was killed:
    its last writes are still in the log.
    """
    path = tmp_path_factory.mktemp("large") / "store.sqlite"

    async def build() -> None:
        async with zygote() as process:
            server = ForkedServer(process, path, 0)
            async with LightningStoreClient(await server.start()) as store:
                for number in range(100):
                    request = RolloutRequest(
                        task=number, rollout_id=f"ro-{number}", run_id=("gone", "kept")[number % 2]
                    )
                    attempt = (await store.start_rollout(request)).attempt
                    await store.add_many_spans(spans_of(attempt.rollout_id, attempt.attempt_id, number))
                    await store.update_attempt(attempt.rollout_id, attempt.attempt_id, status="succeeded")
            await server.end()

    asyncio.run(build())
    assert path.with_name("store.sqlite-wal").stat().st_size > 0
    return path


def spans_of(rollout_id: str, attempt_id: str, number: int) -> list[Span]:
    """Return a thousand spans of an attempt."""
    return [
        Span(
            span_id=f"{number:08x}{part:08x}",
            trace_id=f"{number:032x}",
            name="chat policy",
            start_time_ns=part,
            attributes=attributes_of(number, part),
            rollout_id=rollout_id,
            attempt_id=attempt_id,
        )
        for part in range(1000)
    ]


def attributes_of(number: int, part: int) -> dict[str, str]:
    """Return a short text, and for some a long one that spans of both runs share."""
    long = {"prompt": f"prompt {number // 2} " + "word " * 1000} if part % 100 == 0 else {}
    return {"gen_ai.request.model": "policy", "text": f"{number} {part} " + "word " * 20, **long}


@pytest.fixture
def killed_file(large_file: Path, tmp_path: Path) -> Path:
    """A copy of the large file and its log, as the kill left them."""
    for file in large_file.parent.glob("store.sqlite*"):
        shutil.copy(file, tmp_path / file.name)
    return tmp_path / large_file.name


async def test_a_killed_store_of_100_000_spans_serves_again_at_once(killed_file: Path) -> None:
    """How fast is what benchmarks/store_restart.py measures; here it is only printed."""
    server = CommandServer(killed_file, lasting_port(random.Random(2)))
    for _ in range(3):
        began = time.perf_counter()
        async with LightningStoreClient(await server.start()) as store:
            seconds = time.perf_counter() - began
            assert (await store.statistics())["spans"] == 100_000
            await store.add_many_spans(
                spans_of("ro-0", (await store.get_latest_attempt("ro-0")).attempt_id, 0)
            )
        await server.end()
        sys.stdout.write(f"serves {seconds:.2f} s after its start\n")
        assert seconds < HANGS_SECONDS


async def test_a_kill_during_a_backup_hurts_neither_the_store_nor_the_copy(
    killed_file: Path, tmp_path: Path
) -> None:
    rng = random.Random(3)
    async with zygote() as process:
        server = ForkedServer(process, killed_file, lasting_port(rng))
        url = await server.start()
        began = time.perf_counter()
        assert await asyncio.to_thread(copied, url, tmp_path / "copy.sqlite")
        seconds = time.perf_counter() - began
        for number in range(8):
            target = tmp_path / f"copy-{number}.sqlite"
            copying = asyncio.create_task(asyncio.to_thread(copied, url, target))
            await asyncio.sleep(rng.uniform(0.0, seconds))
            await server.end()
            assert await copying == target.exists()
            if target.exists():
                await check_the_copy(target)
            assert await server.start() == url
        await server.end()
    await check_the_copy(tmp_path / "copy.sqlite")
    await check_the_copy(killed_file)
    assert list(tmp_path.glob(".*")) == []


def copied(url: str, target: Path) -> bool:
    """Make a backup as ``agl store backup`` does; return whether the server sent all of it."""
    try:
        with appearing_whole(target) as unfinished:
            download(url, unfinished, token=None)
    except StoreUnavailableError:
        return False
    return True


async def check_the_copy(path: Path) -> None:
    async with SqliteLightningStore(str(path)) as store:
        assert (await store.statistics())["spans"] == 100_000
    check_integrity(path)


def check_integrity(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_kill_during_a_deletion_leaves_a_store_that_goes_on_with_it(killed_file: Path) -> None:
    rng = random.Random(4)
    async with zygote() as process:
        server = ForkedServer(process, killed_file, lasting_port(rng))
        for _ in range(8):
            deleting = asyncio.create_task(deleted(await server.start()))
            await asyncio.sleep(rng.uniform(0.01, 0.2))
            await server.end()
            await deleting
        await deleted(await server.start())
        await server.end()
    async with SqliteLightningStore(str(killed_file)) as store:
        rollouts = [one.rollout_id async for one in iter_rollouts(store)]
        assert rollouts == [f"ro-{number}" for number in range(1, 100, 2)]
        assert (await store.statistics())["spans"] == 50_000
        for number in range(1, 100, 2):
            page = await store.query_spans(SpanQuery(rollout_id=f"ro-{number}"))
            assert [one.attributes for one in page.items] == [
                attributes_of(number, part) for part in range(1000)
            ]
    check_integrity(killed_file)


async def deleted(url: str) -> None:
    """Delete the run that is over, as far as the server lives."""
    with suppress(StoreUnavailableError, NotFoundError):  # an earlier call may have got to the end
        async with LightningStoreClient(url, retry_seconds=0) as store:
            await store.delete_run("gone")


async def test_a_full_disk_refuses_what_it_cannot_store_and_nothing_else(tmp_path: Path) -> None:
    path, text = tmp_path / "store.sqlite", "x" * 20_000
    kept: list[str] = []
    async with zygote() as process:
        server = ForkedServer(process, path, 0)
        url = await server.start(most_bytes=2_000_000)
        async with LightningStoreClient(url, retry_seconds=0) as store:
            with pytest.raises(StoreUnavailableError, match="disk"):
                await enqueue_for_ever(store, text, kept)
            with pytest.raises(StoreUnavailableError, match="nothing of this call is stored"):
                await store.enqueue_many_rollouts([RolloutRequest(task=text) for _ in range(100)])
            assert [one.rollout_id async for one in iter_rollouts(store)] == kept  # it still reads
            resource.prlimit(
                server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )
            kept.append(
                (await store.enqueue_rollout(RolloutRequest(task=text))).rollout_id
            )  # and writes again
        await server.end()
    async with SqliteLightningStore(str(path)) as store:
        assert [one.rollout_id async for one in iter_rollouts(store)] == kept
    check_integrity(path)


async def enqueue_for_ever(store: LightningStoreClient, task: str, kept: list[str]) -> None:
    while True:
        kept.append((await store.enqueue_rollout(RolloutRequest(task=task))).rollout_id)
