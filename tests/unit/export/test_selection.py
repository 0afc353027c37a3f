"""Which rollouts are exported, and that they are read page by page."""

from __future__ import annotations

from typing import Any

import pytest
from recorded_runs import rollout, span

from agl.errors import ConfigError
from agl.export.selection import PAGE, RolloutFilter, spans_of, with_attempts
from agl.store.sqlite import SqliteStore
from agl.types import Page, Rollout, RolloutQuery, Span, SpanQuery


class CountingStore(SqliteStore):
    """Keeps the sizes of the pages that are asked for."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.pages: list[int] = []

    async def query_rollouts(self, query: RolloutQuery | None = None) -> Page[Rollout]:
        page = await super().query_rollouts(query)
        self.pages.append(len(page.items))
        return page

    async def query_spans(self, query: SpanQuery) -> Page[Span]:
        page = await super().query_spans(query)
        self.pages.append(len(page.items))
        return page


async def found(store: SqliteStore, **settings: Any) -> list[str]:
    return [one.rollout_id async for one in RolloutFilter(**settings).rollouts(store)]


async def test_a_long_list_is_read_page_by_page_and_no_further_than_it_is_asked_for() -> None:
    async with CountingStore() as store:
        await store.restore(rollouts=[rollout(number) for number in range(2 * PAGE + 1)])
        assert len(await found(store)) == 2 * PAGE + 1
        assert store.pages == [PAGE, PAGE, 1]
        store.pages.clear()
        assert await found(store, limit=3) == ["ro-0", "ro-1", "ro-2"]
        assert store.pages == [PAGE]


async def test_the_spans_of_one_rollout_are_read_page_by_page() -> None:
    async with CountingStore() as store:
        await store.restore(rollouts=[rollout(1)], spans=[span(1, place) for place in range(1, PAGE + 3)])
        assert [one.sequence_id async for one in spans_of(store, "ro-1")] == list(range(1, PAGE + 3))
        assert store.pages == [PAGE, 2]


async def test_filters_combine() -> None:
    async with SqliteStore(":memory:") as store:
        await store.restore(
            rollouts=[
                rollout(1, reward=0.0),
                rollout(2, reward=0.5, mode="val"),
                rollout(3, reward=None),
                rollout(4, reward=None, status="failed"),
                rollout(5, reward=1.0, run_id="r2"),
            ]
        )
        assert await found(store, min_reward=0.0) == ["ro-1", "ro-2", "ro-5"]
        assert await found(store, min_reward=0.5, run_id="r1") == ["ro-2"]
        assert await found(store, status="failed") == ["ro-4"]
        assert await found(store, status=("failed", "succeeded"), limit=4) == ["ro-1", "ro-2", "ro-3", "ro-4"]
        assert await found(store, mode="val") == ["ro-2"]
        wanted = RolloutFilter(mode="test", min_reward=2.0)
        assert str(wanted.nothing_found(store)) == (
            "nothing to export: memory has no rollout with mode=test min_reward=2.0; see agl ls rollouts"
        )


async def test_a_rollout_comes_with_its_attempts() -> None:
    async with SqliteStore(":memory:") as store:
        await store.restore(rollouts=[rollout(1)])
        assert await with_attempts(store, await store.get_rollout_by_id("ro-1")) == rollout(1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"limit": 0}, "limit=0 must be at least 1"),
        ({"min_reward": float("nan")}, "min_reward=nan must be a number"),
        ({"status": ()}, "leaves nothing"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RolloutFilter(**settings)
