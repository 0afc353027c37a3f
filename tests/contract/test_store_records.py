"""What every LightningStore promises about spans, resources, workers and runs (design, sections 4 and 5)."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from agl.errors import ConflictError, InvalidRequestError, NotFoundError
from agl.store.base import LightningStore
from agl.store.paging import iter_spans
from agl.types import (
    LLM,
    AttemptedRollout,
    MetricQuery,
    ModelEndpoint,
    PromptTemplate,
    ProxyLLM,
    ResourcesQuery,
    RolloutConfig,
    RolloutRequest,
    RunQuery,
    Span,
    SpanEvent,
    SpanLink,
    SpanQuery,
    SpanStatus,
    Weights,
    WorkerQuery,
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
RETRY = RolloutConfig(max_attempts=2, unresponsive_seconds=10)
numbers = itertools.count(1)


def span(held: AttemptedRollout | None = None, **fields: Any) -> Span:
    """Return a new span, by default of the attempt."""
    owner: dict[str, Any] = {}
    if held is not None:
        owner = {"rollout_id": held.rollout.rollout_id, "attempt_id": held.attempt.attempt_id}
    base = {"span_id": f"{next(numbers):016x}", "trace_id": TRACE, "name": "work", "start_time_ns": 1}
    return Span(**(base | owner | fields))


async def started(store: LightningStore, **fields: Any) -> AttemptedRollout:
    return await store.start_rollout(RolloutRequest(task="t", **fields), worker_id="w")


async def listed(store: LightningStore, **filters: Any) -> list[Span]:
    return list((await store.query_spans(SpanQuery(**filters))).items)


# Spans.


async def test_a_span_comes_back_as_it_was_given(store: LightningStore) -> None:
    held = await started(store)
    given = span(
        held,
        parent_id="00f067aa0ba902b7",
        name="chat policy",
        kind="client",
        status=SpanStatus(code="error", description="no"),
        attributes={"a": 1, "b": 1.5, "c": [True, None], "d": {"e": "ü"}, "f": "x"},
        events=(SpanEvent(name="e", time_ns=5, attributes={"k": "v"}),),
        links=(SpanLink(trace_id=TRACE, span_id="00f067aa0ba902b8", attributes={"k": 1}),),
        resource={"service.name": "agent"},
        start_time_ns=1_700_000_000_000_000_001,
        end_time_ns=1_700_000_000_000_000_002,
    )
    stored = await store.add_span(given)
    assert stored == given.model_copy(update={"sequence_id": 1})
    assert await listed(store, rollout_id=held.rollout.rollout_id) == [stored]


async def test_ids_that_are_not_hex_are_kept_as_they_are(store: LightningStore) -> None:
    for trace_id, span_id in (
        ("T" * 32, "s"),
        (TRACE.upper(), "00F067AA0BA902B7"),
        ("ab" * 8, "no hex at all!!!"),
    ):
        stored = await store.add_span(span(trace_id=trace_id, span_id=span_id, parent_id="p"))
        assert (stored.trace_id, stored.span_id) == (trace_id, span_id)
        assert await listed(store, trace_id=trace_id) == [stored]


async def test_changing_a_returned_span_changes_nothing_stored(store: LightningStore) -> None:
    held = await started(store)
    (await store.add_span(span(held, attributes={"a": [1]}))).attributes["a"].append(2)
    (await listed(store, rollout_id=held.rollout.rollout_id))[0].attributes["a"].append(3)
    assert (await listed(store, rollout_id=held.rollout.rollout_id))[0].attributes == {"a": [1]}


async def test_the_first_span_makes_an_attempt_run_and_renews_its_lease(
    store: LightningStore, clock: Any
) -> None:
    held = await started(store, config=RETRY)
    clock.advance(8)
    await store.add_span(span(held))
    attempt = await store.get_latest_attempt(held.rollout.rollout_id)
    assert attempt is not None
    assert (attempt.status, attempt.last_heartbeat_at, attempt.lease) == (
        "running",
        clock.now,
        clock.now + 10,
    )
    assert (await store.get_rollout_by_id(held.rollout.rollout_id)).status == "running"
    clock.advance(8)
    await store.get_next_span_sequence_id(held.rollout.rollout_id, held.attempt.attempt_id)
    clock.advance(8)  # alive: the allocation was a sign of life
    done = await store.update_attempt(held.rollout.rollout_id, held.attempt.attempt_id, status="succeeded")
    assert done.rollout.status == "succeeded"


async def test_spans_of_unknown_rollouts_and_attempts_are_refused_all_together(store: LightningStore) -> None:
    held, other = await started(store), await started(store)
    for wrong in (
        {"rollout_id": "none"},
        {"rollout_id": "none", "attempt_id": held.attempt.attempt_id},
        {"rollout_id": held.rollout.rollout_id, "attempt_id": "none"},
        {"rollout_id": other.rollout.rollout_id, "attempt_id": held.attempt.attempt_id},
        {"attempt_id": "none"},
    ):
        with pytest.raises(NotFoundError):
            await store.add_many_spans([span(held), span(**wrong)])
    with pytest.raises(InvalidRequestError, match="not JSON"):
        await store.add_many_spans([span(held), span(held, attributes={"a": {1}})])
    assert await listed(store) == []
    assert (await store.add_span(span(held))).sequence_id == 1


async def test_a_span_may_belong_to_a_rollout_only_or_to_nobody(store: LightningStore) -> None:
    held = await started(store, run_id="r")
    of_rollout = await store.add_span(span(rollout_id=held.rollout.rollout_id))
    of_nobody = await store.add_span(span(trace_id="ab" * 16, sequence_id=7))
    assert (of_rollout.attempt_id, of_rollout.sequence_id) == (None, None)
    assert (of_nobody.rollout_id, of_nobody.sequence_id) == (None, None)
    assert await listed(store, rollout_id=held.rollout.rollout_id) == [of_rollout]
    assert await listed(store, run_id="r") == [of_rollout]
    assert await listed(store, trace_id="ab" * 16) == [of_nobody]


async def test_a_span_that_names_only_its_attempt_gets_its_rollout(store: LightningStore) -> None:
    held = await started(store)
    stored = await store.add_many_spans([span(held), span(attempt_id=held.attempt.attempt_id), span(held)])
    assert {one.rollout_id for one in stored} == {held.rollout.rollout_id}
    assert [one.sequence_id for one in stored] == [1, 2, 3]


async def test_an_otel_span_is_given_its_attempt(store: LightningStore) -> None:
    held = await started(store)
    stored = await store.add_otel_span(held.rollout.rollout_id, held.attempt.attempt_id, span())
    assert (stored.rollout_id, stored.attempt_id) == (held.rollout.rollout_id, held.attempt.attempt_id)


async def test_sequence_ids_count_per_attempt(store: LightningStore) -> None:
    one, two = await started(store), await started(store)
    stored = await store.add_many_spans([span(one), span(two), span(one)])
    assert [entry.sequence_id for entry in stored] == [1, 1, 2]
    keys = [(held.rollout.rollout_id, held.attempt.attempt_id) for held in (one, two, one)]
    assert await store.get_many_span_sequence_ids(keys) == [3, 2, 4]
    assert (await store.add_span(span(one))).sequence_id == 5


async def test_sequence_ids_are_unique_however_they_come_about(store: LightningStore) -> None:
    held = await started(store)
    key = (held.rollout.rollout_id, held.attempt.attempt_id)

    async def allocated() -> int | None:
        number = await store.get_next_span_sequence_id(*key)
        return (await store.add_span(span(held, sequence_id=number))).sequence_id

    async def batch() -> list[int | None]:
        return [one.sequence_id for one in await store.add_many_spans([span(held), span(held)])]

    results = await asyncio.gather(*(allocated() for _ in range(20)), *(batch() for _ in range(20)))
    given = [number for result in results for number in (result if isinstance(result, list) else [result])]
    assert sorted(given) == list(range(1, 61))


async def test_an_allocated_number_is_kept_and_a_taken_one_replaced(store: LightningStore) -> None:
    held = await started(store)
    number = await store.get_next_span_sequence_id(held.rollout.rollout_id, held.attempt.attempt_id)
    first = await store.add_span(span(held))
    late = await store.add_span(span(held, sequence_id=number))
    same = await store.add_many_spans([span(held, sequence_id=number), span(held, sequence_id=9)])
    again = await store.add_many_spans(
        [span(held, sequence_id=9), span(held, sequence_id=4), span(held, sequence_id=4)]
    )
    assert (number, first.sequence_id, late.sequence_id) == (1, 2, 1)
    assert [one.sequence_id for one in same] == [3, 9]
    assert [one.sequence_id for one in again] == [10, 4, 11]
    found = await listed(store, rollout_id=held.rollout.rollout_id, attempt_id="latest")
    assert [one.sequence_id for one in found] == [1, 2, 3, 4, 9, 10, 11]
    with pytest.raises(InvalidRequestError, match="numbered from 1"):
        await store.add_span(span(held, sequence_id=0))


async def test_equal_sequence_ids_within_one_call_stay_unique(store: LightningStore) -> None:
    held = await started(store)
    given = (3, 3, None, 5, 5)
    stored = await store.add_many_spans([span(held, sequence_id=number) for number in given])
    assert [one.sequence_id for one in stored] == [3, 4, 5, 6, 7]


async def test_a_span_stored_before_is_answered_not_stored_twice(store: LightningStore) -> None:
    held = await started(store)
    first = await store.add_span(span(held, attributes={"v": 1}))
    again = await store.add_many_spans(
        [first.model_copy(update={"attributes": {"v": 2}}), span(held, name="new")]
    )
    assert again[0] == first
    assert again[1].name == "new"
    twice = span(held, name="twice")
    stored = await store.add_many_spans([twice, twice])
    assert stored[0] == stored[1]
    found = await listed(store, rollout_id=held.rollout.rollout_id)
    assert [one.name for one in found] == ["work", "new", "twice"]
    assert found[0] == first
    other = await store.add_span(first.model_copy(update={"trace_id": "ab" * 16, "sequence_id": None}))
    assert other.trace_id == "ab" * 16  # the same span id in another trace is another span


async def test_late_spans_are_kept_and_change_nothing(store: LightningStore, clock: Any) -> None:
    await store.enqueue_rollout(RolloutRequest(task="t", config=RETRY))
    first = await store.dequeue_rollout(worker_id="w")
    assert first is not None
    key = (first.rollout.rollout_id, first.attempt.attempt_id)
    await store.add_span(span(first))
    await store.update_attempt(*key, status="failed")
    requeued = await store.get_rollout_by_id(key[0])
    old = await store.get_latest_attempt(key[0])
    clock.advance(1)
    assert (await store.add_span(span(first, name="late"))).sequence_id == 2
    assert await store.get_rollout_by_id(key[0]) == requeued
    assert await store.get_latest_attempt(key[0]) == old
    second = await store.dequeue_rollout(worker_id="w")  # still in the queue
    assert second is not None
    await store.add_span(span(first, name="later"))
    assert await store.get_latest_attempt(key[0]) == second.attempt
    done = await store.update_attempt(key[0], second.attempt.attempt_id, status="succeeded", reward=1.0)
    await store.add_span(span(second, name="after"))
    assert await store.get_rollout_by_id(key[0]) == done.rollout
    names = [one.name for one in await listed(store, rollout_id=key[0], attempt_id=key[1])]
    assert names == ["work", "late", "later"]
    assert [one.name for one in await listed(store, rollout_id=key[0], attempt_id="latest")] == ["after"]
    assert [one.name for one in await listed(store, rollout_id=key[0])] == ["work", "late", "later", "after"]


async def test_spans_filter(store: LightningStore) -> None:
    one, two = await started(store, run_id="r1"), await started(store, run_id="r2")
    await store.add_many_spans(
        [
            span(one, name="chat a", attributes={"i": 1, "t": True, "s": "x", "n": None, 'q"\\.': 5}),
            span(
                two, name="chat b", attributes={"i": 2, "t": 1, "s": "1", "l": [1, 2], "o": {"a": 1, "b": 2}}
            ),
            span(one, name="chau", attributes={"i": 1.0, "t": False, "l": [2, 1]}, trace_id="cd" * 16),
            span(name="alone"),
        ]
    )

    async def found(**filters: Any) -> list[str]:
        return [entry.name for entry in await listed(store, **filters)]

    assert await found() == ["chat a", "chat b", "chau", "alone"]
    assert await found(order="desc", limit=2) == ["alone", "chau"]
    assert await found(run_id="r1") == ["chat a", "chau"]
    assert await found(name="chat b") == ["chat b"]
    assert await found(name_prefix="chat ") == ["chat a", "chat b"]
    assert await found(name_prefix="cha") == ["chat a", "chat b", "chau"]
    assert await found(name_prefix="") == await found()
    assert await found(name_prefix="\U0010ffff") == []
    assert await found(trace_id="cd" * 16) == ["chau"]
    assert await found(rollout_id=two.rollout.rollout_id) == ["chat b"]
    assert await found(attempt_id=one.attempt.attempt_id) == ["chat a", "chau"]
    assert await found(rollout_id=two.rollout.rollout_id, attempt_id=one.attempt.attempt_id) == []
    assert await found(rollout_id="none", attempt_id="latest") == []
    assert await found(attributes={"i": 1}) == ["chat a", "chau"]
    assert await found(attributes={"t": True}) == ["chat a"]
    assert await found(attributes={"t": 1}) == ["chat b"]
    assert await found(attributes={"s": "1"}) == ["chat b"]
    assert await found(attributes={"s": 1}) == []
    assert await found(attributes={"n": None}) == ["chat a"]
    assert await found(attributes={'q"\\.': 5}) == ["chat a"]
    assert await found(attributes={"l": [1, 2]}) == ["chat b"]
    assert await found(attributes={"o": {"b": 2, "a": 1}}) == ["chat b"]
    assert await found(attributes={"i": 1, "t": False}) == ["chau"]
    with pytest.raises(InvalidRequestError, match="latest"):
        await found(attempt_id="latest")


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_show_each_span_once(store: LightningStore, order: Any) -> None:
    held = await started(store)
    await store.add_many_spans([span(held, sequence_id=number) for number in (5, 3, 9, 1)])
    await store.add_many_spans([span(rollout_id=held.rollout.rollout_id), span(held), span()])
    for filters in (
        {},
        {"rollout_id": held.rollout.rollout_id},
        {"attempt_id": held.attempt.attempt_id},
        {"name": "work"},
    ):
        whole = await listed(store, order=order, **filters)
        for limit in (1, 2, 3):
            query = SpanQuery(order=order, limit=limit, **filters)  # pyright: ignore[reportArgumentType]
            assert [one async for one in iter_spans(store, query)] == whole
    numbers_seen = [one.sequence_id for one in await listed(store, attempt_id=held.attempt.attempt_id)]
    assert numbers_seen == [1, 3, 5, 9, 10]


# Resources.


async def test_resources_are_numbered_immutable_versions(store: LightningStore, clock: Any) -> None:
    given: dict[str, Any] = {
        "main": LLM(
            base_url="http://127.0.0.1:1/v1", model="m", api_key="secret", sampling={"temperature": 1.0}
        ),
        "policy": ProxyLLM(base_url="http://127.0.0.1:2", model="p", policy_version=3),
        "judge": ModelEndpoint(
            model="judge", urls=("http://a/v1", "http://b/v1"), modes=("val",), priority=2
        ),
        "prompt": PromptTemplate(template="Say {what}"),
        "weights": Weights(path="/w", policy_version=3),
        "limits": {"a": [1, 2]},
        "number": 5,
    }
    first = await store.add_resources(given, run_id="r", resources_id="rs-1")
    assert (first.version, first.run_id, first.created_at, first.resources) == (1, "r", clock.now, given)
    second = await store.add_resources({"number": 6})
    assert second.version == 2
    assert await store.add_resources({"number": 7}, resources_id="rs-1") == first
    given["limits"]["a"].append(3)
    first.resources["limits"]["a"].append(3)
    assert (await store.get_resources_by_id("rs-1")).resources["limits"] == {"a": [1, 2]}
    assert (await store.get_resources_by_id(second.resources_id)) == second


async def test_the_latest_resources_are_those_of_the_run(store: LightningStore) -> None:
    assert await store.get_latest_resources() is None
    await store.add_resources({"n": 1}, run_id="a", resources_id="rs-1")
    await store.add_resources({"n": 2}, run_id="b", resources_id="rs-2")
    await store.add_resources({"n": 3}, run_id="a", resources_id="rs-3")
    await store.add_resources({"n": 4}, resources_id="rs-4")
    for run_id, expected in ((None, "rs-4"), ("a", "rs-3"), ("b", "rs-2")):
        latest = await store.get_latest_resources(run_id=run_id)
        assert latest is not None
        assert latest.resources_id == expected
    assert await store.get_latest_resources(run_id="c") is None
    page = await store.list_resources(ResourcesQuery(limit=3))
    rest = await store.list_resources(ResourcesQuery(limit=3, cursor=page.next_cursor))
    assert [one.version for one in (*page.items, *rest.items)] == [1, 2, 3, 4]
    assert [
        one.version for one in (await store.list_resources(ResourcesQuery(run_id="a", order="desc"))).items
    ] == [3, 1]
    assert len((await store.list_resources()).items) == 4


async def test_resources_of_unknown_shape_are_refused(store: LightningStore) -> None:
    for wrong in ({"llm": {"kind": "llm", "modell": "m"}}, {"x": {1, 2}}):
        with pytest.raises(InvalidRequestError):
            await store.add_resources(wrong)  # pyright: ignore[reportArgumentType]
    assert await store.get_latest_resources() is None


# Workers.


async def test_a_worker_is_registered_and_refreshed(store: LightningStore, clock: Any) -> None:
    worker = await store.register_worker("w1", host="h", pid=1)
    assert (worker.worker_id, worker.host, worker.pid, worker.status) == ("w1", "h", 1, "idle")
    assert (worker.registered_at, worker.last_heartbeat_at) == (clock.now, clock.now)
    clock.advance(5)
    again = await store.register_worker("w1", host="h2", pid=2)
    assert (again.host, again.pid, again.registered_at, again.last_heartbeat_at) == (
        "h2",
        2,
        clock.now - 5,
        clock.now,
    )
    assert (await store.query_workers()).items == [again]
    with pytest.raises(InvalidRequestError):
        await store.register_worker("")


async def test_a_heartbeat_renews_the_attempts_in_the_workers_hands(
    store: LightningStore, clock: Any
) -> None:
    await store.register_worker("w1")
    await store.enqueue_many_rollouts([RolloutRequest(task=n, config=RETRY) for n in range(2)])
    held = await store.dequeue_many_rollouts(worker_id="w1", limit=2)
    ids = [one.attempt.attempt_id for one in held]
    for _ in range(3):
        clock.advance(9)
        assert await store.worker_heartbeat("w1", attempts=ids, stats={"cpu": 0.5}) == []
    for one in held:
        attempt = await store.get_latest_attempt(one.rollout.rollout_id)
        assert attempt is not None
        assert (attempt.status, attempt.last_heartbeat_at, attempt.lease) == (
            "running",
            clock.now,
            clock.now + 10,
        )
        assert (await store.get_rollout_by_id(one.rollout.rollout_id)).status == "running"
    (worker,) = (await store.query_workers()).items
    assert (worker.status, worker.attempts, worker.stats) == ("busy", tuple(ids), {"cpu": 0.5})


async def test_a_heartbeat_names_what_is_no_longer_the_workers(store: LightningStore, clock: Any) -> None:
    await store.register_worker("w1")
    await store.enqueue_many_rollouts([RolloutRequest(task=n, config=RETRY) for n in range(4)])
    held = await store.dequeue_many_rollouts(worker_id="w1", limit=4)
    own, cancelled, done, lost = (one.attempt.attempt_id for one in held)
    await store.cancel_rollout(held[1].rollout.rollout_id)
    await store.update_attempt(held[2].rollout.rollout_id, done, status="succeeded")
    clock.advance(5)
    assert await store.worker_heartbeat("w1", attempts=[own]) == []
    clock.advance(5)  # the lease of `lost` is over
    other = await store.dequeue_rollout(worker_id="w2")
    assert other is not None
    others = other.attempt.attempt_id
    gone = await store.worker_heartbeat("w1", attempts=[own, cancelled, done, lost, others, "unknown"])
    assert gone == [cancelled, done, lost, others, "unknown"]
    theirs = await store.get_latest_attempt(other.rollout.rollout_id)
    assert theirs == other.attempt  # not touched by another worker's heartbeat


async def test_a_silent_worker_is_offline(store: LightningStore, clock: Any) -> None:
    await store.register_worker("w1")
    await store.register_worker("w2")
    await store.enqueue_rollout(RolloutRequest(task="t"))
    await store.dequeue_rollout(worker_id="w2")
    clock.advance(50)
    await store.worker_heartbeat("w1")
    clock.advance(50)
    await store.register_worker("w3")

    async def found(**filters: Any) -> dict[str, str]:
        page = await store.query_workers(WorkerQuery(**filters))
        return {worker.worker_id: worker.status for worker in page.items}

    assert await found() == {"w1": "idle", "w2": "offline", "w3": "idle"}
    assert list(await found(order="desc")) == ["w3", "w2", "w1"]
    assert await found(status=("offline", "busy")) == {"w2": "offline"}
    assert [worker.worker_id for worker in await store.get_active_workers()] == ["w1", "w3"]
    assert [worker.worker_id for worker in await store.get_active_workers(within_seconds=100)] == [
        "w1",
        "w2",
        "w3",
    ]
    await store.dequeue_rollout(worker_id="w2")  # asking for work is a sign of life
    assert (await found())["w2"] == "busy"
    page = await store.query_workers(WorkerQuery(limit=2))
    rest = await store.query_workers(WorkerQuery(limit=2, cursor=page.next_cursor))
    assert [worker.worker_id for worker in rest.items] == ["w3"]


# Runs and metrics.


async def test_a_run_is_opened_once(store: LightningStore, clock: Any) -> None:
    run = await store.add_run(
        name="ppo", run_id="r", command="agl train", settings={"a": {"b": 1}}, git_commit="c"
    )
    assert (run.status, run.created_at, run.settings, run.git_commit) == (
        "running",
        clock.now,
        {"a": {"b": 1}},
        "c",
    )
    assert await store.add_run(name="another", run_id="r") == run
    other = await store.add_run(name="ppo")
    assert other.run_id != "r"
    assert [one.run_id for one in (await store.query_runs()).items] == ["r", other.run_id]


async def test_a_finished_run_may_be_resumed(store: LightningStore, clock: Any) -> None:
    await store.add_run(name="ppo", run_id="r")
    clock.advance(5)
    assert (await store.update_run("r", status="interrupted")).finished_at == clock.now
    assert [one.run_id for one in (await store.query_runs(RunQuery(status=("interrupted",)))).items] == ["r"]
    resumed = await store.update_run("r", status="running")
    assert (resumed.status, resumed.finished_at) == ("running", None)
    assert (await store.query_runs(RunQuery(name="none"))).items == []
    with pytest.raises(InvalidRequestError):
        await store.update_run("r", status="lost")  # pyright: ignore[reportArgumentType]


async def test_a_metric_stored_again_replaces_its_value(store: LightningStore, clock: Any) -> None:
    await store.add_run(name="ppo", run_id="r")
    await store.add_metrics("r", 2, {"loss": 0.5, "reward": 1})
    await store.add_metrics("r", 1, {"loss": 1.5})
    clock.advance(1)
    await store.add_metrics("r", 2, {"loss": 0.25})

    async def found(**filters: Any) -> list[tuple[str, int, float]]:
        page = await store.query_metrics(MetricQuery(run_id="r", **filters))
        return [(point.name, point.step, point.value) for point in page.items]

    assert await found() == [("loss", 1, 1.5), ("loss", 2, 0.25), ("reward", 2, 1.0)]
    assert await found(names=("reward",)) == [("reward", 2, 1.0)]
    assert await found(min_step=2, order="desc") == [("reward", 2, 1.0), ("loss", 2, 0.25)]
    page = await store.query_metrics(MetricQuery(run_id="r", limit=2))
    rest = await store.query_metrics(MetricQuery(run_id="r", limit=2, cursor=page.next_cursor))
    assert [point.name for point in rest.items] == ["reward"]
    assert rest.items[0].time == clock.now - 1
    with pytest.raises(InvalidRequestError, match="loss"):
        await store.add_metrics("r", 3, {"reward": 1.0, "loss": float("nan")})
    assert await found(min_step=3) == []


# Bad calls among good ones.


async def test_one_callers_mistake_does_not_hurt_the_others(store: LightningStore) -> None:
    held = await started(store, rollout_id="ro")
    key = ("ro", held.attempt.attempt_id)
    results = await asyncio.gather(
        store.add_span(span(held)),
        store.update_attempt(*key, status="succeeded", reward="much"),  # pyright: ignore[reportArgumentType]
        store.add_span(span(held, start_time_ns=2**70)),
        store.start_rollout(RolloutRequest(task="t", rollout_id="new", priority=2**70)),
        store.start_rollout(RolloutRequest(task="t", rollout_id="ro")),
        store.add_span(span(held)),
        store.enqueue_rollout(RolloutRequest(task="t")),
        return_exceptions=True,
    )
    kinds = [type(result) for result in results]
    assert kinds[0] is kinds[5] is Span
    assert issubclass(kinds[1], InvalidRequestError)
    assert kinds[2] is kinds[3] is InvalidRequestError
    assert kinds[4] is ConflictError
    assert not isinstance(results[6], BaseException)
    assert (await store.statistics())["rollouts"]["pending"] == 1
    assert [one.sequence_id for one in await listed(store, rollout_id="ro")] == [1, 2]
