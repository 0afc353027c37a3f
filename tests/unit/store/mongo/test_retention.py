from __future__ import annotations

from typing import Any

import pytest
from fake_mongo import FakeMongo

from agl.errors import ConflictError, NotFoundError
from agl.store.mongo import MongoStore
from agl.store.mongo.retention import ROLLOUTS_AT_ONCE
from agl.types import RolloutRequest, Span

TRACE = "ab" * 16


async def finished(store: MongoStore, rollout_id: str, **fields: Any) -> None:
    held = await store.start_rollout(RolloutRequest(task="t", rollout_id=rollout_id, **fields))
    await store.add_otel_span(
        rollout_id,
        held.attempt.attempt_id,
        Span(span_id=rollout_id, trace_id=TRACE, name="n", start_time_ns=1),
    )
    await store.update_attempt(rollout_id, held.attempt.attempt_id, status="succeeded")


async def test_resources_that_another_run_uses_stay(store: MongoStore) -> None:
    await store.add_resources({}, run_id="r", resources_id="used")
    await store.add_resources({}, run_id="r", resources_id="unused")
    await finished(store, "ro-1", run_id="r", resources_id="unused")
    await finished(store, "ro-2", run_id="s", resources_id="used")
    assert await store.delete_run("r") == {
        "rollouts": 1,
        "attempts": 1,
        "spans": 1,
        "resources": 1,
        "metrics": 0,
    }
    assert [one.resources_id for one in (await store.list_resources()).items] == ["used"]
    with pytest.raises(NotFoundError):
        await store.delete_run("r")


async def test_a_rollout_that_came_during_the_deletion_keeps_the_run(
    store: MongoStore, database: FakeMongo
) -> None:
    await store.add_run(name="n", run_id="r")
    await store.update_run("r", status="succeeded")
    await finished(store, "ro-1", run_id="r")
    delete = database["rollouts"].delete_many

    async def late(where: dict[str, Any]) -> Any:
        await store.enqueue_rollout(RolloutRequest(task="t", rollout_id="ro-2", run_id="r"))
        return await delete(where)

    database["rollouts"].delete_many = late  # type: ignore[method-assign]
    with pytest.raises(ConflictError, match="ro-2"):
        await store.delete_run("r")
    assert (await store.get_rollout_by_id("ro-2")).status == "pending"
    assert [one.run_id for one in (await store.query_runs()).items] == ["r"]


async def test_old_spans_go_in_portions_and_rollouts_stay(
    store: MongoStore, database: FakeMongo, clock: Any
) -> None:
    await finished(store, "ro")
    rollouts, spans = database["rollouts"].documents, database["spans"].documents
    for number in range(ROLLOUTS_AT_ONCE + 1):  # more than a portion
        rollouts[f"ro-{number}"] = rollouts["ro"] | {"_id": f"ro-{number}"}
    (span,) = spans.values()
    last = f"ro-{ROLLOUTS_AT_ONCE}"
    spans["last"] = span | {"_id": "last", "rollout_id": last}
    await store.add_span(Span(span_id="loose", trace_id=TRACE, name="n", start_time_ns=1))
    clock.now += 10.0
    await finished(store, "new")
    assert await store.delete_spans(finished_before=1000.0) == 0
    assert await store.delete_spans(finished_before=1005.0, run_id="none") == 0
    assert await store.delete_spans(finished_before=1005.0) == 3
    counts = await store.statistics()
    assert (counts["spans"], counts["rollouts"]["succeeded"]) == (1, ROLLOUTS_AT_ONCE + 3)
