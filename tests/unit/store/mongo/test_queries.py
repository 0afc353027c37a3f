from __future__ import annotations

from typing import Any

import pytest

from agl.errors import InvalidRequestError
from agl.store.mongo import MongoStore
from agl.store.mongo.queries import behind, order_text
from agl.store.paging import cursor_text, iter_spans
from agl.types import RolloutQuery, RolloutRequest, Span, SpanQuery, WorkerQuery

TRACE = "ab" * 16


def test_what_comes_behind_a_cursor() -> None:
    keys = ("position", "_id")
    assert behind(SpanQuery(), keys) == {}
    cursor = cursor_text("position,_id asc", (5, "x"))
    assert behind(SpanQuery(cursor=cursor), keys) == {
        "$or": [{"position": {"$gt": 5}}, {"position": 5, "_id": {"$gt": "x"}}]
    }
    cursor = cursor_text("version desc", (5,))
    assert behind(SpanQuery(cursor=cursor, order="desc"), ("version",)) == {"version": {"$lt": 5}}
    with pytest.raises(InvalidRequestError, match="another order"):
        behind(SpanQuery(cursor=cursor), ("version",))
    assert order_text(SpanQuery(order="desc"), keys) == "position,_id desc"


async def test_a_filter_by_several_attributes_needs_them_all(store: MongoStore) -> None:
    for number, attributes in enumerate(({"a.b": 1, "$c": 2}, {"a.b": 1}, {"a.b": 1.0, "$c": 3})):
        await store.add_span(
            Span(span_id=str(number), trace_id=TRACE, name="n", start_time_ns=1, attributes=attributes)
        )

    async def found(**attributes: Any) -> list[str]:
        return [one.span_id for one in (await store.query_spans(SpanQuery(attributes=attributes))).items]

    assert await found(**{"a.b": 1}) == ["0", "1", "2"]
    assert await found(**{"a.b": 1, "$c": 2}) == ["0"]
    assert await found(**{"$c": True}) == []


async def test_spans_of_one_moment_are_paged_without_loss(store: MongoStore) -> None:
    spans = [Span(span_id=f"{number}", trace_id=TRACE, name="n", start_time_ns=1) for number in range(7)]
    await store.add_many_spans(spans)
    store._access["spans"].documents = {  # as if many processes had stored them in one microsecond
        key: one | {"position": 5}
        for key, one in store._access["spans"].documents.items()  # pyright: ignore[reportAttributeAccessIssue]
    }
    for order in ("asc", "desc"):
        query = SpanQuery(limit=2, order=order)  # pyright: ignore[reportArgumentType]
        assert sorted([one.span_id async for one in iter_spans(store, query)]) == list("0123456")


async def test_two_filters_on_the_creation_time_are_one_condition(store: MongoStore, clock: Any) -> None:
    for number in range(4):
        await store.enqueue_rollout(RolloutRequest(task=number))
        clock.now += 1.0
    query = RolloutQuery(created_after=1000.0, created_before=1003.0)
    assert [one.task for one in (await store.query_rollouts(query)).items] == [1, 2]


async def test_workers_of_a_status_are_paged_though_it_is_not_stored(store: MongoStore, clock: Any) -> None:
    for number in range(3):
        await store.register_worker(f"old-{number}")
    clock.now += 100.0
    for number in range(3):
        await store.register_worker(f"new-{number}")
    page = await store.query_workers(WorkerQuery(status=("idle",), limit=2))
    rest = await store.query_workers(WorkerQuery(status=("idle",), limit=2, cursor=page.next_cursor))
    assert [one.worker_id for one in (*page.items, *rest.items)] == ["new-0", "new-1", "new-2"]
    assert rest.next_cursor is None
