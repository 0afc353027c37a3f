"""Cursors and iterators over pages."""

from __future__ import annotations

import pytest

from agl.errors import InvalidRequestError
from agl.store.paging import cursor_key, cursor_text, iter_attempts, iter_rollouts, iter_spans
from agl.store.sqlite import InMemoryLightningStore
from agl.types import AttemptQuery, RolloutQuery, RolloutRequest, Span, SpanQuery


@pytest.mark.parametrize("key", [[1.5, 3], [None, 9], ["näme", 2**53]])
def test_a_cursor_carries_its_sort_key(key: list[object]) -> None:
    cursor = cursor_text("created_at asc", key)
    assert cursor.isascii()
    assert not set(cursor) & set("+/=")
    assert cursor_key(cursor, "created_at asc", 2) == key


def test_a_cursor_of_another_order_or_none_at_all_is_refused() -> None:
    cursor = cursor_text("created_at asc", [1, 2])
    for text, order, length in (
        (cursor, "created_at desc", 2),
        (cursor, "created_at asc", 1),
        ("", "created_at asc", 2),
        ("AAAA", "created_at asc", 2),
        ("ünï", "created_at asc", 2),
        ("e30", "created_at asc", 2),
    ):
        with pytest.raises(InvalidRequestError, match="cursor"):
            cursor_key(text, order, length)


async def test_iterators_walk_all_pages() -> None:
    async with InMemoryLightningStore() as store:
        held = [await store.start_rollout(RolloutRequest(task=number)) for number in range(5)]
        for number in range(5):
            await store.add_span(Span(span_id=f"{number}", trace_id="t", name=f"{number}", start_time_ns=1))
        assert [one.task async for one in iter_rollouts(store, RolloutQuery(limit=2))] == [0, 1, 2, 3, 4]
        assert [one.task async for one in iter_rollouts(store)] == [0, 1, 2, 3, 4]
        attempts = [one.attempt_id async for one in iter_attempts(store, AttemptQuery(limit=2))]
        assert attempts == [one.attempt.attempt_id for one in held]
        names = [one.name async for one in iter_spans(store, SpanQuery(limit=3, order="desc"))]
        assert names == ["4", "3", "2", "1", "0"]
