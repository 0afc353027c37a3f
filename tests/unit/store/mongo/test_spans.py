from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fake_mongo import FakeMongo

from agl.errors import InvalidRequestError
from agl.store.mongo import MongoStore
from agl.store.mongo.access import ENVELOPE_BYTES
from agl.types import RolloutRequest, Span, SpanQuery


def span(number: int, key: tuple[str, str], **fields: Any) -> Span:
    base = {"span_id": f"{number:016x}", "trace_id": "ab" * 16, "name": "n", "start_time_ns": 1}
    return Span(**(base | {"rollout_id": key[0], "attempt_id": key[1]} | fields))


async def started(store: MongoStore) -> tuple[str, str]:
    held = await store.start_rollout(RolloutRequest(task="t", rollout_id="ro"))
    return "ro", held.attempt.attempt_id


async def numbers(store: MongoStore) -> list[int | None]:
    return [one.sequence_id for one in (await store.query_spans(SpanQuery(rollout_id="ro"))).items]


async def test_processes_number_the_spans_of_one_attempt_together(
    store: MongoStore, another: Callable[[], MongoStore]
) -> None:
    key = await started(store)
    async with another() as other:
        await asyncio.gather(
            *(
                one.add_many_spans([span(2 * number + part, key) for part in range(2)])
                for number, one in enumerate([store, other] * 5)
            )
        )
    assert await numbers(store) == list(range(1, 21))


async def test_two_spans_that_bring_one_free_number_get_two(
    store: MongoStore, another: Callable[[], MongoStore], database: FakeMongo
) -> None:
    key = await started(store)
    await store.get_many_span_sequence_ids([key] * 3)
    insert = database["spans"].insert_many

    async def slower(documents: Any, *, ordered: bool) -> None:
        database["spans"].insert_many = insert  # type: ignore[method-assign]
        async with another() as other:  # takes the number while this call is about to insert it
            assert (await other.add_span(span(1, key, sequence_id=2))).sequence_id == 2
        await insert(documents, ordered=ordered)

    database["spans"].insert_many = slower  # type: ignore[method-assign]
    assert (await store.add_span(span(2, key, sequence_id=2))).sequence_id == 4
    assert await numbers(store) == [2, 4]


async def test_spans_whose_answers_were_lost_are_stored_once(store: MongoStore, database: FakeMongo) -> None:
    key = await started(store)
    for lost in range(3):
        database.lose_answers(1, after=lost)
        stored = await store.add_many_spans([span(10 * lost + part, key) for part in range(2)])
        assert len({one.sequence_id for one in stored}) == 2
    assert len(set(await numbers(store))) == 6


async def test_the_document_is_put_together_from_its_parts(store: MongoStore, database: FakeMongo) -> None:
    key = await started(store)
    await store.add_span(span(1, key, attributes={"a": 1}))
    (document,) = database["spans"].documents.values()
    assert document["_id"] == f"32:{'ab' * 16}{1:016x}"
    assert (document["rollout_id"], document["attempt_id"], document["number"]) == (*key, 1)
    assert (document["sequence_id"], document["attributes"]) == (1, '{"a":1}')


async def test_a_span_too_large_for_a_document_is_refused_and_nothing_is_stored(store: MongoStore) -> None:
    key = await started(store)
    store._access.document_bytes = ENVELOPE_BYTES + 1000
    with pytest.raises(InvalidRequestError, match="may have 1000"):
        await store.add_many_spans([span(1, key), span(2, key, attributes={"a": "x" * 2000})])
    assert await numbers(store) == []


async def test_no_spans_are_no_work(store: MongoStore) -> None:
    assert await store.add_many_spans([]) == []
