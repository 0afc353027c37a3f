import asyncio

import pytest

from agl.errors import NotFoundError, StoreUnavailableError
from agl.proxy.writer import SpanWriter
from agl.types import Span


def span_of(number):
    return Span(span_id=f"{number:016x}", trace_id="t", name="chat policy", start_time_ns=number)


async def test_spans_that_come_during_a_write_go_together_in_the_next(store):
    writer = SpanWriter(store, timeout_seconds=5.0)
    store.gate.clear()
    first = asyncio.create_task(writer.add(span_of(0)))
    for _ in range(3):
        await asyncio.sleep(0)
    others = [asyncio.create_task(writer.add(span_of(number))) for number in range(1, 10)]
    await asyncio.sleep(0)
    store.gate.set()
    await asyncio.gather(first, *others)
    assert store.batches == [1, 9]
    assert len(store.spans) == 10


async def test_a_batch_has_a_largest_size(store):
    writer = SpanWriter(store, timeout_seconds=5.0)
    await asyncio.gather(*(writer.add(span_of(number)) for number in range(600)))
    assert store.batches == [256, 256, 88]


async def test_nobody_returns_before_the_write_has(store):
    writer = SpanWriter(store, timeout_seconds=5.0)
    store.gate.clear()
    adding = asyncio.create_task(writer.add(span_of(0)))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not adding.done()
    store.gate.set()
    await adding
    assert len(store.spans) == 1


async def test_a_refused_span_takes_none_of_its_neighbours_with_it(store):
    class Picky:
        async def add_many_spans(self, spans):
            if any(span.span_id == span_of(2).span_id for span in spans):
                raise NotFoundError("no attempt a9")
            return await store.add_many_spans(spans)

    writer = SpanWriter(Picky(), timeout_seconds=5.0)
    outcomes = await asyncio.gather(
        *(writer.add(span_of(number)) for number in range(4)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), type(None), NotFoundError, type(None)]
    assert [span.start_time_ns for span in store.spans] == [0, 1, 3]


async def test_an_unavailable_store_fails_all_and_the_next_batch_is_tried_again(store):
    writer = SpanWriter(store, timeout_seconds=5.0)
    store.failure = StoreUnavailableError("closed")
    outcomes = await asyncio.gather(
        *(writer.add(span_of(number)) for number in range(3)), return_exceptions=True
    )
    assert all(isinstance(outcome, StoreUnavailableError) for outcome in outcomes)
    store.failure = None
    await writer.add(span_of(4))
    assert len(store.spans) == 1


async def test_a_store_that_hangs_is_unavailable(store):
    store.gate.clear()
    writer = SpanWriter(store, timeout_seconds=0.01)
    with pytest.raises(StoreUnavailableError, match=r"did not take 1 spans within 0\.01 s"):
        await writer.add(span_of(0))


async def test_a_fault_in_the_store_reaches_the_caller(store):
    store.failure = ZeroDivisionError()
    writer = SpanWriter(store, timeout_seconds=5.0)
    with pytest.raises(ZeroDivisionError):
        await writer.add(span_of(0))
    store.failure = None
    await writer.add(span_of(1))


async def test_a_caller_that_is_cancelled_takes_no_span_back(store):
    writer = SpanWriter(store, timeout_seconds=5.0)
    store.gate.clear()
    adding = asyncio.create_task(writer.add(span_of(0)))
    for _ in range(3):
        await asyncio.sleep(0)
    adding.cancel()
    store.gate.set()
    await writer.drain()
    assert len(store.spans) == 1


async def test_a_proxy_that_stops_does_not_wait_for_a_store_that_is_away(store):
    writer = SpanWriter(store, timeout_seconds=600.0)
    store.gate.clear()
    adding = [asyncio.create_task(writer.add(span_of(number))) for number in range(2)]
    for _ in range(3):
        await asyncio.sleep(0)
    adding.append(asyncio.create_task(writer.add(span_of(2))))  # in the next write
    await asyncio.sleep(0)
    writer.hurry(0.01)
    async with asyncio.timeout(10):
        await writer.drain()
        outcomes = await asyncio.gather(*adding, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailableError] * 3
    assert "before the proxy stopped" in str(outcomes[0])
