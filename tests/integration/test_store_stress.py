"""Many processes at one served store: nothing fails, nothing is lost, nothing is handed out twice."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import store_sharers
from store_servers import ForkedServer, zygote
from store_workers import at_once, request_of, span_of

from agl.store.client import LightningStoreClient
from agl.store.paging import iter_rollouts, iter_spans
from agl.types import RolloutQuery, RolloutRequest, SpanQuery

PROCESSES = 32
WRITES = 200


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """A store file served by a process of its own."""
    async with zygote() as process:
        server = ForkedServer(process, tmp_path / "store.sqlite", 0)
        yield await server.start()
        await server.end()


async def test_32_processes_write_20_kb_each_200_times_while_two_readers_page(url: str) -> None:
    async with LightningStoreClient(url) as store, asyncio.TaskGroup() as group:
        finished = asyncio.Event()
        readers = [
            group.create_task(read_rollouts(store, finished)),
            group.create_task(read_spans(store, finished)),
        ]
        written = await at_once("write", url, processes=PROCESSES, writes=WRITES)
        finished.set()
        assert written == [WRITES] * PROCESSES
        numbers = [(worker, number) for worker in range(PROCESSES) for number in range(WRITES)]
        rollouts, spans = [await reader for reader in readers]
        assert rollouts == {
            request_of(*key).rollout_id: hash(request_of(*key).task) for key in numbers if key[1] % 2 == 0
        }
        assert spans == {
            span_of(*key).span_id: hash(span_of(*key).attributes["text"]) for key in numbers if key[1] % 2
        }


async def read_rollouts(store: LightningStoreClient, finished: asyncio.Event) -> dict[str, int]:
    """Read all pages again and again, the last time when all is written; no page repeats what another showed."""
    while True:
        last = finished.is_set()
        seen: dict[str, int] = {}
        async for rollout in iter_rollouts(store, RolloutQuery(limit=200)):
            assert rollout.rollout_id not in seen
            seen[rollout.rollout_id] = hash(rollout.task)
        if last:
            return seen


async def read_spans(store: LightningStoreClient, finished: asyncio.Event) -> dict[str, int]:
    """The same with spans."""
    while True:
        last = finished.is_set()
        seen: dict[str, int] = {}
        async for span in iter_spans(store, SpanQuery(limit=200)):
            assert span.span_id not in seen
            seen[span.span_id] = hash(span.attributes["text"])
        if last:
            return seen


async def test_eight_processes_share_a_queue_without_a_double_hand_out(url: str) -> None:
    async with LightningStoreClient(url) as store:
        rollouts = await store.enqueue_many_rollouts([RolloutRequest(task=number) for number in range(2000)])
        done = await at_once("claim", url, processes=8, callers=4)
        claimed = [tuple(one) for process in done for one in process]
        assert sorted(rollout_id for rollout_id, _ in claimed) == sorted(one.rollout_id for one in rollouts)
        assert len({attempt_id for _, attempt_id in claimed}) == 2000
        statistics = await store.statistics()
        for what in ("rollouts", "attempts"):
            assert {key: count for key, count in statistics[what].items() if count} == {"succeeded": 2000}


async def test_loops_threads_and_forked_children_share_one_client(url: str) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, store_sharers.__file__, url, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await program.communicate()
    assert program.returncode == 0, "a process failed; its traceback is above"
    finished = dict(json.loads(line) for line in out.splitlines())
    assert len(finished) == 1 + store_sharers.THREADS + store_sharers.CHILDREN
    async with LightningStoreClient(url) as store:
        for run_id, rollout_ids in finished.items():
            page = await store.query_rollouts(RolloutQuery(run_id=run_id))
            assert {one.rollout_id for one in page.items} == set(rollout_ids)
            assert [one.status for one in page.items] == ["succeeded"] * store_sharers.ROLLOUTS
            spans = await store.query_spans(SpanQuery(run_id=run_id))
            assert {one.rollout_id for one in spans.items} == set(rollout_ids)
