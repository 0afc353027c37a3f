"""Ten thousand clients that wait do not hinder those who work, and each gets what it waits for."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from store_servers import ForkedServer, zygote

from agl.store.client import LightningStoreClient
from agl.types import RolloutRequest

WAITERS = 10_000
OPENED_AT_ONCE = 200


@pytest.fixture
def open_files() -> Iterator[None]:
    """Let this process, and the server that it starts, open a file for each waiter."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
async def url(open_files: None, tmp_path: Path) -> AsyncIterator[str]:
    """A store file served by a process of its own."""
    async with zygote() as process:
        server = ForkedServer(process, tmp_path / "store.sqlite", 0)
        yield await server.start()
        await server.end()


async def asked(url: str, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a dequeue that waits for a rollout of a run that has none yet."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    body = json.dumps({"worker_id": f"w{number}", "run_id": "later", "wait_seconds": 30}).encode()
    head = f"POST /v1/rollouts/dequeue HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-length: {len(body)}\r\n"
    writer.write(head.encode() + b"content-type: application/json\r\n\r\n" + body)
    await writer.drain()
    return reader, writer


async def answer(reader: asyncio.StreamReader) -> bytes:
    """Return the body of an answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(int(length.split(b":")[1]))


async def test_ten_thousand_waiting_clients_do_not_hinder_claims(url: str) -> None:
    waiting = []
    for first in range(0, WAITERS, OPENED_AT_ONCE):
        numbers = range(first, first + OPENED_AT_ONCE)
        waiting += await asyncio.gather(*(asked(url, number) for number in numbers))
    answers = [asyncio.create_task(answer(reader)) for reader, _ in waiting]
    async with LightningStoreClient(url) as store:
        for number in range(200):
            rollout = await store.enqueue_rollout(RolloutRequest(task=number, run_id="now"))
            held = await store.dequeue_rollout(worker_id="worker", run_id="now")
            assert held is not None
            assert held.rollout.rollout_id == rollout.rollout_id
            await store.update_attempt(rollout.rollout_id, held.attempt.attempt_id, status="succeeded")
        expected = await enqueued(store, 1000)
        claimed: list[str] = []
        for one in asyncio.as_completed(answers):
            got = json.loads(await one)
            claimed += [] if got is None else [got["rollout_id"]]
            if len(claimed) == len(expected):
                break
        assert set(claimed) == expected, "each rollout went to one of those who waited"
        assert (await store.statistics())["attempts"]["preparing"] == len(expected)
        for task, (_, writer) in zip(answers, waiting, strict=True):
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*answers, return_exceptions=True)
        expected = await enqueued(
            store, 100
        )  # the server may not have noticed yet that nobody waits any more
        for _ in range(100):
            held = await store.dequeue_rollout(worker_id="worker", run_id="later", wait_seconds=30)
            assert held is not None, "a client that left kept a rollout"
            expected.remove(held.rollout.rollout_id)


async def enqueued(store: LightningStoreClient, count: int) -> set[str]:
    """Enqueue what they wait for."""
    requests = [RolloutRequest(task=number, run_id="later") for number in range(count)]
    return {one.rollout_id for one in await store.enqueue_many_rollouts(requests)}
