"""Spans arrive in batches and in order; what does not arrive is counted; the agent never waits."""

import asyncio
import logging
import threading
import time

import pytest

from agl.errors import ConfigError
from agl.tracing.exporter import StoreSpanExporter
from agl.tracing.tracer import Tracer


def emit(tracer: Tracer, names: list[str], rollout_id: str = "r1") -> None:
    with tracer.attempt(rollout_id, f"a-{rollout_id}") as (attempt, _):
        for name in names:
            attempt.tracer.start_span(name).end()


async def test_flush_makes_all_spans_durable_in_order_with_one_write(tracer: Tracer, spans) -> None:
    emit(tracer, [f"s{number}" for number in range(100)])
    assert await tracer.flush()
    assert [span.name for span in spans.spans] == [*(f"s{number}" for number in range(100)), "agl.rollout"]
    assert spans.batches == [101]
    assert tracer.counts.stored == 101


async def test_flushes_that_come_together_share_a_write(tracer: Tracer, spans) -> None:
    async def attempt(number: int) -> None:
        emit(tracer, ["x"], f"r{number}")
        assert await tracer.flush()

    await asyncio.gather(*(attempt(number) for number in range(50)))
    assert sum(spans.batches) == 100
    assert len(spans.batches) <= 2


async def test_spans_are_written_after_the_interval_without_a_flush(tracer: Tracer, spans) -> None:
    emit(tracer, ["x"])
    await asyncio.wait_for(spans.asked.wait(), 5)


async def test_a_full_batch_is_written_at_once(spans) -> None:
    exporter = StoreSpanExporter(spans, batch_size=4, interval_seconds=3600)
    async with Tracer(spans, exporter=exporter) as tracer:
        emit(tracer, ["a", "b", "c"])
        await asyncio.wait_for(spans.asked.wait(), 5)
        assert spans.batches == [4]


async def test_spans_from_other_threads_are_written_without_a_flush(spans) -> None:
    exporter = StoreSpanExporter(spans, interval_seconds=0.01)
    async with Tracer(spans, exporter=exporter) as tracer:
        threading.Thread(target=emit, args=(tracer, ["x"])).start()
        await asyncio.wait_for(spans.asked.wait(), 5)


async def test_an_unavailable_store_is_tried_again_and_nothing_is_lost(tracer: Tracer, spans) -> None:
    spans.unavailable_for = 3
    emit(tracer, ["x"])
    assert await tracer.flush()
    assert [span.name for span in spans.spans] == ["x", "agl.rollout"]
    assert not tracer.counts.lost


async def test_spans_for_a_store_that_stays_away_are_counted_and_logged(spans, caplog) -> None:
    spans.unavailable_for = 10**9
    exporter = StoreSpanExporter(spans, retry_seconds=0.02, retry_delay_seconds=0.005)
    async with Tracer(spans, exporter=exporter) as tracer:
        emit(tracer, ["x"])
        assert await tracer.flush()
        assert tracer.counts.lost == {"store unavailable": 2}
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "2 spans lost so far (store unavailable): x of rollout r1 attempt a-r1" in errors[0]


async def test_a_store_that_hangs_never_blocks_the_agent_and_drops_are_counted(spans, caplog) -> None:
    spans.open.clear()
    exporter = StoreSpanExporter(spans, max_queue=10, batch_size=5, interval_seconds=0.001)
    async with Tracer(spans, exporter=exporter) as tracer:
        emit(tracer, ["first"])
        await asyncio.wait_for(spans.asked.wait(), 5)  # the writer hangs with 2 spans in its hands
        begin = time.perf_counter()
        emit(tracer, ["x"] * 2000)
        assert time.perf_counter() - begin < 2.0
        assert tracer.counts.lost == {"queue full": 1991}  # 2001 spans, room for 10
        assert not await tracer.flush(timeout_seconds=0.01)
        assert len([record for record in caplog.records if record.levelno == logging.ERROR]) <= 12
        spans.open.set()
        assert await tracer.flush()
    assert tracer.counts.stored == 12


async def test_a_write_without_an_answer_counts_as_an_unavailable_store(spans) -> None:
    spans.open.clear()
    exporter = StoreSpanExporter(
        spans, call_timeout_seconds=0.01, retry_seconds=0.01, retry_delay_seconds=0.005
    )
    async with Tracer(spans, exporter=exporter) as tracer:
        emit(tracer, ["x"])
        assert await tracer.flush()
        assert tracer.counts.lost == {"store unavailable": 2}


async def test_a_refused_span_takes_no_other_with_it(tracer: Tracer, spans, caplog) -> None:
    spans.unknown_rollouts = {"r2"}
    emit(tracer, ["a", "crash", "b"], "r1")
    emit(tracer, ["c"], "r2")
    emit(tracer, ["d"], "r3")
    assert await tracer.flush()
    assert [span.name for span in spans.spans] == ["a", "b", "agl.rollout", "d", "agl.rollout"]
    assert tracer.counts.lost == {"ZeroDivisionError": 1, "NotFoundError": 2}
    assert "there is no rollout r2" in caplog.text


async def test_what_cannot_be_written_before_the_end_is_counted(spans) -> None:
    spans.open.clear()
    exporter = StoreSpanExporter(spans)
    await exporter.__aenter__()
    tracer = Tracer(spans, exporter=exporter)
    emit(tracer, ["x"])
    await exporter.close(timeout_seconds=0.01)
    assert exporter.counts.lost == {"not written before close": 2}
    emit(tracer, ["late"])
    assert exporter.counts.lost == {"not written before close": 2, "exporter closed": 2}
    assert await exporter.flush()


async def test_leaving_the_tracer_writes_what_is_left(spans) -> None:
    async with Tracer(spans, exporter=StoreSpanExporter(spans, interval_seconds=3600)) as tracer:
        emit(tracer, ["x"])
    assert [span.name for span in spans.spans] == ["x", "agl.rollout"]


async def test_a_queue_without_room_is_refused(spans) -> None:
    with pytest.raises(ConfigError, match="max_queue"):
        StoreSpanExporter(spans, max_queue=0)
