"""Spans, resources, workers and runs over the wire: what is sent, and what is decided here."""

from __future__ import annotations

from typing import Any

import pytest
from recorded_runs import RUN, rollout, span
from scripted_store import ScriptedStore

from agl.errors import InvalidRequestError, NotFoundError, StoreUnavailableError
from agl.store import wire
from agl.store.client import HttpStore
from agl.store.restoring import Restores
from agl.types import MetricQuery, RunQuery, Span, SpanQuery, WorkerQuery

WORKER = {"worker_id": "w", "registered_at": 1.0, "last_heartbeat_at": 1.0}


async def test_spans_are_stored_by_the_cheap_answer(client: HttpStore, server: ScriptedStore) -> None:
    server.on("POST /v1/spans", lambda _: {"sequence_ids": [5]})
    span = Span(span_id="1", trace_id="t", name="n", start_time_ns=1, rollout_id="r", attempt_id="a")
    assert await client.add_span(span) == span.model_copy(update={"sequence_id": 5})
    assert server.asked[0].target == "/v1/spans?answer=ids"


async def test_many_sequence_ids_are_asked_for_in_parts(client: HttpStore, server: ScriptedStore) -> None:
    numbers = iter(range(1, 10 * wire.MAX_BATCH))
    server.on(
        "POST /v1/spans/sequence", lambda one: {"sequence_ids": [next(numbers) for _ in one.json["attempts"]]}
    )
    keys = [("r", "a")] * (wire.MAX_BATCH + 1)
    assert await client.get_many_span_sequence_ids(keys) == list(range(1, wire.MAX_BATCH + 2))
    assert server.asked[1].json == {"attempts": [{"rollout_id": "r", "attempt_id": "a"}]}
    assert await client.get_many_span_sequence_ids([]) == []


async def test_a_page_and_its_cursor_pass_through(client: HttpStore, server: ScriptedStore) -> None:
    server.on("GET /v1/spans", lambda _: {"items": [], "next_cursor": "next"})
    page = await client.query_spans(SpanQuery(limit=10_000, cursor="c"))
    assert page.next_cursor == "next"
    assert server.asked[0].target == "/v1/spans?limit=10000&cursor=c&order=asc"


async def test_resources_cannot_be_called_latest(client: HttpStore, server: ScriptedStore) -> None:
    with pytest.raises(NotFoundError, match="latest"):
        await client.get_resources_by_id("latest")
    assert server.asked == []
    server.on("GET /v1/resources/latest", lambda _: None)
    assert await client.get_latest_resources(run_id="r 1") is None
    assert server.asked[0].target == "/v1/resources/latest?run_id=r+1"


async def test_a_heartbeat_tells_what_is_lost(client: HttpStore, server: ScriptedStore) -> None:
    server.on("POST /v1/workers/w/heartbeat", lambda _: {"lost": ["a2"]})
    assert await client.worker_heartbeat("w", attempts=("a1", "a2"), stats={"n": 1}) == ["a2"]
    await client.worker_heartbeat("w")
    assert [one.json for one in server.asked] == [
        {"attempts": ["a1", "a2"], "stats": {"n": 1}},
        {"attempts": []},
    ]
    with pytest.raises(InvalidRequestError, match="stats of worker w is not JSON"):
        await client.worker_heartbeat("w", stats={"n": {1}})


async def test_active_workers_are_a_list_of_their_own(client: HttpStore, server: ScriptedStore) -> None:
    server.on("GET /v1/workers", lambda _: {"items": [WORKER], "next_cursor": None})
    assert [one.worker_id for one in await client.get_active_workers(within_seconds=5)] == ["w"]
    assert server.asked[0].target == "/v1/workers?active_within_seconds=5.0&limit=10000"


async def test_a_metric_that_is_not_finite_sends_nothing(client: HttpStore, server: ScriptedStore) -> None:
    server.on("POST /v1/runs/r/metrics", lambda _: None)
    with pytest.raises(InvalidRequestError, match="metric loss of step 3 is inf"):
        await client.add_metrics("r", 3, {"reward": 1.0, "loss": float("inf")})
    await client.add_metrics("r", 3, {"reward": 1})
    assert [one.json for one in server.asked] == [{"step": 3, "values": {"reward": 1.0}}]


async def test_metrics_are_asked_of_their_run(client: HttpStore, server: ScriptedStore) -> None:
    point = {"run_id": "r", "name": "loss", "step": 1, "value": 0.5, "time": 1.0}
    server.on("GET /v1/runs/r/metrics", lambda _: {"items": [point]})
    query = MetricQuery(run_id="r", names=("loss", "reward"), min_step=1)
    assert [one.value for one in (await client.query_metrics(query)).items] == [0.5]
    assert server.asked[0].target == (
        "/v1/runs/r/metrics?limit=1000&order=asc&names=loss&names=reward&min_step=1"
    )


async def test_filters_without_values_match_nothing_and_ask_nobody(
    client: HttpStore, server: ScriptedStore
) -> None:
    calls: list[Any] = [
        lambda: client.query_workers(WorkerQuery(status=())),
        lambda: client.query_runs(RunQuery(status=())),
        lambda: client.query_metrics(MetricQuery(run_id="r", names=())),
    ]
    for call in calls:
        assert (await call()).items == []
    assert server.asked == []
    await client.close()
    for call in calls:
        with pytest.raises(StoreUnavailableError):
            await call()


async def test_deletions_answer_how_much_is_gone(client: HttpStore, server: ScriptedStore) -> None:
    server.on("DELETE /v1/spans", lambda _: {"deleted": 3})
    server.on("DELETE /v1/runs/r", lambda _: {"rollouts": 1, "spans": 2})
    assert await client.delete_spans(finished_before=5, run_id="r") == 3
    assert await client.delete_run("r") == {"rollouts": 1, "spans": 2}
    assert server.asked[0].target == "/v1/spans?finished_before=5.0&run_id=r"


async def test_a_run_is_sent_with_its_settings(client: HttpStore, server: ScriptedStore) -> None:
    server.on("POST /v1/runs", lambda one: {**one.json, "created_at": 1.0})
    run = await client.add_run(name="ppo", settings={"a": {"b": 1}}, git_commit="c")
    assert (run.run_id, run.settings, run.git_commit) == ("run-1", {"a": {"b": 1}}, "c")


async def test_records_of_another_store_are_sent_as_they_are(
    client: HttpStore, server: ScriptedStore
) -> None:
    server.on("POST /v1/restore", lambda _: {"runs": 1, "rollouts": 1, "attempts": 1, "spans": 1})
    assert isinstance(client, Restores)
    counts = await client.restore(runs=[RUN], rollouts=[rollout(1)], spans=[span(1, 1)])
    assert counts == {"runs": 1, "rollouts": 1, "attempts": 1, "spans": 1}
    sent = wire.Restore.model_validate(server.asked[0].json)
    assert sent == wire.Restore(runs=(RUN,), rollouts=(rollout(1),), spans=(span(1, 1),))
