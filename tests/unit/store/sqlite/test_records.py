"""Spans, resources, workers and runs, as callers on an event loop see them."""

from __future__ import annotations

import asyncio
from typing import Any

from agl.store.sqlite import InMemoryLightningStore
from agl.types import RolloutRequest, Span


async def test_what_a_caller_does_to_its_arguments_afterwards_does_not_matter() -> None:
    async with InMemoryLightningStore() as store:
        held = await store.start_rollout(RolloutRequest(task="t"))
        key = (held.rollout.rollout_id, held.attempt.attempt_id)
        spans = [Span(span_id="s", trace_id="t", name="n", start_time_ns=1)]
        keys = [key, key]
        values: dict[str, Any] = {"loss": 1.0}
        run = await store.add_run(name="r")
        calls = asyncio.gather(
            store.add_many_spans(spans),
            store.get_many_span_sequence_ids(keys),
            store.add_metrics(run.run_id, 1, values),
        )
        await asyncio.sleep(0)
        spans.clear()
        keys.clear()
        values.clear()
        stored, numbers, _ = await calls
        assert [span.span_id for span in stored] == ["s"]
        assert numbers == [1, 2]
