"""What is forgotten, what stays, and that nobody waits for it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from agl.errors import ConflictError, NotFoundError
from agl.store.base import LightningStore
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.store.sqlite.retention import CHUNK, SpanDeletion, delete_some_of_run
from agl.store.sqlite.store import SqliteStore
from agl.types import RolloutQuery, RolloutRequest, Span, SpanQuery

PROMPT = random.Random(1).randbytes(2_000).hex()


async def finished(
    store: LightningStore, rollout_id: str, run_id: str, *, num_spans: int = 1, **fields: Any
) -> None:
    held = await store.start_rollout(
        RolloutRequest(task=PROMPT, rollout_id=rollout_id, run_id=run_id, **fields)
    )
    attempt_id = held.attempt.attempt_id
    spans = [
        Span(
            span_id=f"{rollout_id}-{number}",
            trace_id=rollout_id,
            name="s",
            start_time_ns=1,
            attempt_id=attempt_id,
            attributes={"prompt": PROMPT, "filler": "x" * 900},
        )
        for number in range(num_spans)
    ]
    await store.add_many_spans(spans)
    await store.update_attempt(rollout_id, attempt_id, status="succeeded", reward=1.0)


async def uses(store: SqliteStore) -> list[int]:
    """References of each blob, which ``release`` counts down and a count over all rows must confirm."""
    rows = await store._access.read(lambda db: db.execute("SELECT uses FROM blob ORDER BY uses").fetchall())
    return [row[0] for row in rows]


async def test_a_deleted_run_takes_all_that_was_its_own_and_nothing_else() -> None:
    async with InMemoryLightningStore() as store:
        await store.add_run(name="x", run_id="old")
        await store.add_resources({"prompt": PROMPT}, run_id="old", resources_id="mine")
        await store.add_resources({"prompt": PROMPT}, run_id="old", resources_id="shared")
        await finished(store, "a", "old", num_spans=3)
        await finished(store, "b", "other", resources_id="shared")
        await store.add_metrics("old", 1, {"reward": 1.0, "loss": 2.0})
        await store.update_run("old", status="succeeded")
        assert await uses(store) == [2 + 4 + 2]  # resources; task and spans of a; of b
        gone = await store.delete_run("old")
        assert gone == {"rollouts": 1, "attempts": 1, "spans": 3, "metrics": 2, "resources": 1}
        assert [one.rollout_id for one in (await store.query_rollouts()).items] == ["b"]
        assert [one.attributes["prompt"] for one in (await store.query_spans(SpanQuery())).items] == [PROMPT]
        assert [one.resources_id for one in (await store.list_resources()).items] == ["shared"]
        assert not (await store.query_runs()).items
        assert await uses(store) == [1 + 2]
        with pytest.raises(NotFoundError):
            await store.delete_run("old")
        assert (await store.delete_run("other"))["rollouts"] == 1  # known by its rollouts only
        assert await uses(store) == [1]


async def test_a_run_under_way_is_not_deleted() -> None:
    async with InMemoryLightningStore() as store:
        await store.add_run(name="x", run_id="now")
        with pytest.raises(ConflictError, match="running"):
            await store.delete_run("now")
        await store.update_run("now", status="interrupted")
        await store.enqueue_rollout(RolloutRequest(task=1, run_id="now"))
        with pytest.raises(ConflictError, match="open rollouts"):
            await store.delete_run("now")


async def test_a_deletion_cut_short_is_finished_by_the_next() -> None:
    async with InMemoryLightningStore() as store:
        await store.add_run(name="x", run_id="old")
        await finished(store, "big", "old", num_spans=CHUNK + 10)
        await finished(store, "small", "old", num_spans=20)
        await store.update_run("old", status="failed")
        gone, done = await store._access.write(lambda transaction: delete_some_of_run(transaction, "old"))
        assert (gone["spans"], done) == (CHUNK, False)
        assert [one.run_id for one in (await store.query_runs()).items] == ["old"]
        assert (await store.delete_run("old"))["spans"] == 30
        assert await uses(store) == []
        assert await store.statistics() == await _statistics_of_an_empty_store()


async def _statistics_of_an_empty_store() -> dict[str, Any]:
    async with InMemoryLightningStore() as store:
        return await store.statistics()


async def test_spans_of_open_rollouts_are_never_deleted() -> None:
    async with InMemoryLightningStore() as store:
        await finished(store, "done", "run")
        held = await store.start_rollout(RolloutRequest(task=1, rollout_id="open", run_id="run"))
        span = Span(span_id="1", trace_id="2", name="s", start_time_ns=1, attempt_id=held.attempt.attempt_id)
        await store.add_span(span)
        assert await store.delete_spans(finished_before=1e12, run_id="run") == 1
        assert [one.rollout_id for one in (await store.query_spans(SpanQuery())).items] == ["open"]


async def test_spans_go_by_when_their_rollout_finished_or_they_came() -> None:
    now = [100.0]
    async with SqliteStore(":memory:", clock=lambda: now[0]) as store:
        for when in (100.0, 200.0, 300.0):
            now[0] = when
            await finished(store, f"at-{when:.0f}", "run")
            stray = Span(span_id=f"stray-{when:.0f}", trace_id="t", name="s", start_time_ns=1)
            await store.add_span(stray)
        assert await store.delete_spans(finished_before=200.0, run_id="run") == 1
        assert await store.delete_spans(finished_before=300.0) == 1 + 2
        left = [one.span_id for one in (await store.query_spans(SpanQuery())).items]
        assert left == ["at-300-0", "stray-300"]
        assert {one.reward for one in (await store.query_rollouts(RolloutQuery())).items} == {1.0}
        assert await store.delete_spans(finished_before=300.0) == 0


async def test_old_spans_go_in_chunks_each_once() -> None:
    async with InMemoryLightningStore() as store:
        for number, count in enumerate([CHUNK - 1, 5, CHUNK + 1]):
            await finished(store, f"r{number}", "run", num_spans=count)
        deletion = SpanDeletion(finished_before=1e12, run_id=None)
        chunks = [await store._access.write(deletion.delete_some) for _ in range(5)]
        assert chunks == [(CHUNK, False), (CHUNK, False), (5, False), (0, True), (0, True)]
        assert await uses(store) == [3]  # the tasks


async def test_the_file_shrinks_and_writers_come_in_between(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    async with SqliteLightningStore(str(path)) as store:
        await finished(store, "keep", "new", num_spans=10)
        for number in range(10):
            await finished(store, f"r{number}", "old", num_spans=500)
        full = _bytes(path)
        deletion = asyncio.create_task(store.delete_run("old"))
        others = 0
        while not deletion.done() and others < 200:  # not so many that the file cannot shrink
            await store.enqueue_rollout(RolloutRequest(task=others))
            others += 1
        assert (await deletion)["spans"] == 5000
        assert others > 2  # in between, not behind; how many is the scheduler's
        assert full > 4_000_000
        assert _bytes(path) < full / 5  # what is left is mostly the other rollouts
        assert len((await store.query_spans(SpanQuery())).items) == 10
        check = await store._access.read(lambda db: db.execute("PRAGMA integrity_check").fetchone())
        assert check == ("ok",)


def _bytes(path: Path) -> int:
    return sum(one.stat().st_size for one in path.parent.glob("store.sqlite*"))
