"""The client store against a real server: restarts, lost answers, threads, forks, other stores, TLS."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from scripted_store import until
from store_servers import lasting_port
from tcp_relay import TLS, Relay

from agl.errors import AccessDeniedError, StoreError, StoreUnavailableError
from agl.http.address import dialer
from agl.http.connections import Connections
from agl.http.parsing import PlainParser
from agl.store.client import HttpStore, LightningStoreClient
from agl.store.client.address import address_from
from agl.store.server import StoreServer
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.types import AttemptQuery, RolloutQuery, RolloutRequest, Span, SpanQuery
from agl.types.tokens import scoped_token

FORKS = """
import asyncio, os, sys
from agl.store.client import LightningStoreClient
from agl.types import RolloutRequest

client = LightningStoreClient(sys.argv[1])

async def add(who):
    rollouts = await asyncio.gather(
        *(client.enqueue_rollout(RolloutRequest(task=f"{who}-{number}")) for number in range(20))
    )
    assert [one.task for one in rollouts] == [f"{who}-{number}" for number in range(20)]

async def main():
    async with client:
        await add("parent before")
        children = []
        for number in range(3):
            child = os.fork()
            if child == 0:
                asyncio.run(add(f"child {number}"))
                os._exit(0)
            children.append(child)
        await add("parent beside")
        for child in children:
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert status == 0
        await add("parent after")

if sys.argv[2] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""
LOOPS = """
import asyncio, sys
from agl.store.client import LightningStoreClient
from agl.types import RolloutRequest

client = LightningStoreClient(sys.argv[1])
asyncio.run(client.open())
for number in range(3):
    asyncio.run(client.enqueue_rollout(RolloutRequest(task=number)))
"""


numbers = itertools.count(1)


def span(key: tuple[str, str]) -> Span:
    return Span(
        span_id=f"{next(numbers):016x}",
        trace_id="ab" * 16,
        name="s",
        start_time_ns=1,
        rollout_id=key[0],
        attempt_id=key[1],
    )


@asynccontextmanager
async def served(*, token: str | None = None) -> AsyncGenerator[tuple[InMemoryLightningStore, str]]:
    """A store in memory and the URL it is served at."""
    async with InMemoryLightningStore() as store, StoreServer(store, port=0, token=token).serving() as url:
        yield store, url


async def run_script(script: str, *arguments: str) -> tuple[int, str]:
    """Run a script in a process that shows every warning; return its exit code and what it wrote to stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "default", "-c", script, *arguments, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    return process.returncode or 0, errors.decode()


# Outages.


async def test_a_restart_of_the_server_is_survived_by_calls_of_every_kind(tmp_path: Path) -> None:
    port, path = lasting_port(random.Random(1)), str(tmp_path / "store.sqlite")
    client = HttpStore(f"http://127.0.0.1:{port}", retry_seconds=120.0)
    progress, ended = asyncio.Semaphore(0), asyncio.Event()

    async def live(worker: str) -> int:
        lives = 0
        while not ended.is_set():
            rollout = await client.enqueue_rollout(RolloutRequest(task=worker, run_id=worker))
            held = await client.dequeue_rollout(worker_id=worker, run_id=worker, wait_seconds=60)
            assert held is not None
            assert held.rollout.rollout_id == rollout.rollout_id
            key = (rollout.rollout_id, held.attempt.attempt_id)
            await client.add_many_spans([span(key), span(key)])
            await client.update_attempt(*key, status="succeeded", reward=1.0)
            assert [one.status for one in await client.wait_for_rollouts([key[0]])] == ["succeeded"]
            lives += 1
            progress.release()
        return lives

    async def serve(num_lives: int) -> dict[str, Any]:
        async with SqliteLightningStore(path) as store, StoreServer(store, port=port).serving():
            if not workers:
                await client.open()
                workers.extend(asyncio.create_task(live(f"w{number}")) for number in range(8))
                await store.enqueue_rollout(RolloutRequest(task=0, rollout_id="late", run_id="late"))
                idle.append(asyncio.create_task(client.wait_for_rollouts(["late"])))
            for _ in range(num_lives):
                await progress.acquire()
            if ended.is_set():
                await asyncio.wait(workers)
                await store.cancel_rollout("late")
                await idle[0]
            return await store.statistics()

    workers: list[asyncio.Task[int]] = []
    idle: list[asyncio.Task[Any]] = []
    for _ in range(3):
        await serve(20)
    ended.set()
    counts = await serve(8)
    await client.close()
    lives = sum(worker.result() for worker in workers)
    assert (counts["rollouts"]["succeeded"], counts["rollouts"]["cancelled"]) == (lives, 1)
    assert counts["attempts"]["succeeded"] == sum(counts["attempts"].values()) == lives
    assert (counts["spans"], sum(counts["rollouts"].values())) == (2 * lives, lives + 1)


async def test_calls_whose_answers_are_lost_are_done_once() -> None:
    async with served() as (store, url):
        relay = Relay(int(url.rpartition(":")[2]))
        async with relay.serving() as detour, HttpStore(detour, rng=lambda: 0.0) as client:

            async def losing(call: Coroutine[Any, Any, Any]) -> Any:
                """Lose the first answer to a call."""
                relay.loses_answers = True
                task = asyncio.create_task(call)
                before = relay.lost
                await until(lambda: relay.lost > before)
                relay.loses_answers = False
                return await task

            rollout = await losing(client.enqueue_rollout(RolloutRequest(task=1)))
            held = await losing(client.dequeue_rollout(worker_id="w", wait_seconds=60))
            assert held.rollout.rollout_id == rollout.rollout_id
            key = (rollout.rollout_id, held.attempt.attempt_id)
            await losing(client.add_many_spans([span(key), span(key)]))
            resources = await losing(client.add_resources({"n": 1}))
            run = await losing(client.add_run(name="r"))
            done = await losing(client.update_attempt(*key, status="succeeded", reward=1.0))
            assert (done.rollout.reward, resources.version, run.name) == (1.0, 1, "r")
            with pytest.raises(StoreUnavailableError, match="may or may not"):
                await losing(client.start_rollout(RolloutRequest(task=2, rollout_id="once")))
            attempts = (await store.query_attempts(AttemptQuery())).items
            assert [(one.rollout_id, one.sequence_id) for one in attempts] == [(key[0], 1), ("once", 1)]
            counts = await store.statistics()
            assert (counts["spans"], counts["resources"], counts["runs"]) == (2, 1, 1)


async def test_dequeues_that_are_cancelled_at_any_moment_strand_nothing() -> None:
    async with served() as (store, url):
        await store.enqueue_many_rollouts([RolloutRequest(task=number) for number in range(40)])
        async with HttpStore(url) as client:
            for rounds in range(40):
                call = asyncio.create_task(client.dequeue_rollout(worker_id="w", wait_seconds=60))
                for _ in range(rounds):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.wait((call,))
                if not call.cancelled():
                    held = call.result()
                    assert held is not None
                    await client.update_attempt(
                        held.rollout.rollout_id, held.attempt.attempt_id, status="succeeded"
                    )
        counts = await store.statistics()
        assert counts["rollouts"]["preparing"] == counts["attempts"]["preparing"] == 0
        assert counts["rollouts"]["pending"] == 40 - counts["attempts"]["succeeded"]


async def test_a_client_that_vanishes_while_it_waits_takes_nothing_along() -> None:
    async with served() as (store, url):
        client = HttpStore(url)
        await client.open()
        waiting = asyncio.create_task(client.dequeue_rollout(worker_id="gone", wait_seconds=60))
        await client.statistics()
        lane = await client._caller.lane()
        lane.connections.close()  # no undo can be sent any more
        waiting.cancel()
        await asyncio.wait((waiting,))
        await store.enqueue_rollout(RolloutRequest(task=1))
        held = await store.dequeue_rollout(worker_id="w", wait_seconds=10)
        assert held is not None
        assert held.attempt.sequence_id == 1
        await client.close()


# Who answers.


async def test_another_store_at_the_address_is_refused_by_name() -> None:
    port = lasting_port(random.Random(2))
    client = HttpStore(f"http://127.0.0.1:{port}")
    async with InMemoryLightningStore() as first, StoreServer(first, port=port).serving():
        await client.open()
        old = (await first.health())["identity"]
    async with InMemoryLightningStore() as second, StoreServer(second, port=port).serving():
        new = (await second.health())["identity"]
        with pytest.raises(StoreUnavailableError, match=f"another store now: {new}, .* on {old}"):
            await client.enqueue_rollout(RolloutRequest(task=1))
        assert (await second.query_rollouts(RolloutQuery())).items == []
        await client.close()


async def test_tokens_are_checked_at_open() -> None:
    async with served(token="right") as (_, url):
        for token, advice in ((None, "set AGL_STORE_TOKEN"), ("wrong", "check AGL_STORE_TOKEN")):
            with pytest.raises(AccessDeniedError, match=advice):
                await LightningStoreClient(url, token=token).open()
        async with LightningStoreClient(url, token="right") as admin:
            held = await admin.start_rollout(RolloutRequest(task=1))
        key = (held.rollout.rollout_id, held.attempt.attempt_id)
        async with LightningStoreClient(url, token=scoped_token("right", *key)) as agent:
            assert (await agent.add_span(span(key))).sequence_id == 1
            with pytest.raises(AccessDeniedError):
                await agent.enqueue_rollout(RolloutRequest(task=1))


@pytest.mark.parametrize(
    ("hello", "message"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", "is not an `agl store`"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "does not speak HTTP"),
    ],
)
async def test_what_is_no_store_is_told(hello: bytes, message: str) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(hello)
        writer.close()

    async with await asyncio.start_server(say, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(StoreError, match=message):
            await LightningStoreClient(f"http://127.0.0.1:{port}").open()


async def test_tls_is_spoken_and_a_certificate_that_nobody_vouches_for_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as (_, url), Relay(int(url.rpartition(":")[2])).serving(tls=True) as secure:
        with pytest.raises(StoreUnavailableError, match="cannot be trusted"):
            await LightningStoreClient(secure).open()
        monkeypatch.setenv("SSL_CERT_FILE", str(TLS))
        async with LightningStoreClient(secure) as client:
            assert (await client.enqueue_rollout(RolloutRequest(task=1))).task == 1


async def test_the_parser_in_python_reads_a_real_server() -> None:
    async with served() as (_, url):
        address = address_from(url)
        connections = Connections(dialer(address), PlainParser)
        request = f"GET /v1/health HTTP/1.1\r\nhost: {address.authority}\r\n\r\n".encode()
        for _ in range(3):
            answer = await connections.exchange(request, seconds=30)
            assert (answer.status, b"identity" in answer.body) == (200, True)
        connections.close()


# From everywhere.


async def test_threads_with_event_loops_of_their_own_share_a_client() -> None:
    async with served() as (store, url), LightningStoreClient(url) as client:

        async def several(who: int) -> None:
            rollouts = await asyncio.gather(
                *(client.enqueue_rollout(RolloutRequest(task=[who, number])) for number in range(20))
            )
            assert [one.task for one in rollouts] == [[who, number] for number in range(20)]

        await asyncio.gather(*(asyncio.to_thread(asyncio.run, several(who)) for who in range(8)))
        assert (await store.statistics())["rollouts"]["pending"] == 160


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_forked_children_use_the_client_and_leave_the_parents_connections_alone(loop: str) -> None:
    async with served() as (store, url):
        assert await run_script(FORKS, url, loop) == (0, "")
        assert (await store.statistics())["rollouts"]["pending"] == 6 * 20


async def test_a_client_that_is_never_closed_leaves_no_socket_open_behind_its_loops() -> None:
    async with served() as (store, url):
        assert await run_script(LOOPS, url) == (0, "")
        assert (await store.statistics())["rollouts"]["pending"] == 3


async def test_spans_of_many_callers_come_back_to_each(tmp_path: Path) -> None:
    async with served() as (store, url), LightningStoreClient(url) as client:

        async def one(number: int) -> None:
            held = await client.start_rollout(RolloutRequest(task=number))
            key = (held.rollout.rollout_id, held.attempt.attempt_id)
            for count in range(1, 6):
                stored = await client.add_span(span(key))
                assert (stored.rollout_id, stored.sequence_id) == (key[0], count)
            listed = (await client.query_spans(SpanQuery(rollout_id=key[0]))).items
            assert [each.sequence_id for each in listed] == [1, 2, 3, 4, 5]

        await asyncio.gather(*(one(number) for number in range(50)))
        assert (await store.statistics())["spans"] == 250
