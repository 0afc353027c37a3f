from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest

from agl.errors import InvalidRequestError, StoreUnavailableError
from agl.store.otlp.ingestion import store_spans
from agl.store.sqlite import SqliteStore
from agl.types import RolloutRequest, Span, SpanQuery


class CountingStore(SqliteStore):
    """Counts the calls that store spans, and refuses spans named ``refused``."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.sizes: list[int] = []
        self.gone = False

    async def add_many_spans(self, spans: Sequence[Span]) -> list[Span]:
        self.sizes.append(len(spans))
        if self.gone:
            raise StoreUnavailableError("gone")
        if any(span.name == "refused" for span in spans):
            raise InvalidRequestError("refused is no name")
        return await super().add_many_spans(spans)


@pytest.fixture
async def store() -> AsyncIterator[CountingStore]:
    async with CountingStore() as opened:
        yield opened


def span(number: int, rollout_id: str | None = None, attempt_id: str | None = None, name: str = "n") -> Span:
    return Span(
        trace_id="a" * 32,
        span_id=f"{number:016x}",
        name=name,
        start_time_ns=0,
        rollout_id=rollout_id,
        attempt_id=attempt_id,
    )


async def started(store: CountingStore, rollout_id: str) -> str:
    held = await store.start_rollout(RolloutRequest(task=0, rollout_id=rollout_id))
    return held.attempt.attempt_id


async def kept(store: CountingStore) -> list[int]:
    page = await store.query_spans(SpanQuery(trace_id="a" * 32))
    return sorted(int(one.span_id, 16) for one in page.items)


async def test_spans_that_can_be_kept_go_in_with_one_call(store: CountingStore) -> None:
    attempt = await started(store, "ro")
    assert await store_spans(store, [span(1), span(2, "ro"), span(3, "ro", attempt)]) == Counter()
    assert store.sizes == [3]
    assert await kept(store) == [1, 2, 3]


async def test_spans_of_unknown_rollouts_are_rejected_by_name_and_the_others_kept(
    store: CountingStore,
) -> None:
    attempt = await started(store, "ro")
    some = [span(1), span(2, "who"), span(3, "ro", attempt), span(4, "who", "at"), span(5, "what")]
    assert await store_spans(store, some) == {
        "no rollout has the id 'who'": 2,
        "no rollout has the id 'what'": 1,
    }
    assert store.sizes == [5, 2]
    assert await kept(store) == [1, 3]


async def test_spans_of_an_unknown_attempt_are_rejected_together(store: CountingStore) -> None:
    attempt = await started(store, "ro")
    some = [span(number, "ro", "at-none" if number % 2 else attempt) for number in range(1, 101)]
    assert await store_spans(store, some) == {"no attempt has the id 'at-none'": 50}
    assert await kept(store) == list(range(2, 101, 2))
    assert len(store.sizes) < 10


async def test_an_attempt_of_another_rollout_is_rejected(store: CountingStore) -> None:
    await started(store, "ro")
    attempt = await started(store, "other")
    assert await store_spans(store, [span(1, "ro", attempt), span(2, "other", attempt)]) == {
        f"rollout 'ro' has no attempt {attempt!r}": 1
    }
    assert await kept(store) == [2]


async def test_a_span_that_the_store_refuses_is_rejected_alone(store: CountingStore) -> None:
    some = [span(number, name="refused" if number == 7 else "n") for number in range(1, 33)]
    assert await store_spans(store, some) == {"refused is no name": 1}
    assert await kept(store) == [number for number in range(1, 33) if number != 7]


async def test_a_repeat_is_stored_once(store: CountingStore) -> None:
    for _ in range(2):
        assert await store_spans(store, [span(1), span(2)]) == Counter()
    assert await kept(store) == [1, 2]


async def test_more_spans_than_a_batch_go_in_parts(store: CountingStore) -> None:
    await store_spans(store, [span(number) for number in range(1, 10_003)])
    assert store.sizes == [10_000, 2]


async def test_a_store_that_is_away_fails_the_request(store: CountingStore) -> None:
    store.gone = True
    with pytest.raises(StoreUnavailableError):
        await store_spans(store, [span(1)])
