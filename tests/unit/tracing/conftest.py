"""A store of spans that misbehaves on command, and a tracer on it."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from agl.errors import NotFoundError, StoreUnavailableError
from agl.store.base import SpanLog
from agl.tracing.exporter import StoreSpanExporter
from agl.tracing.tracer import Tracer
from agl.types import Page, Span, SpanQuery


class MemorySpans(SpanLog):
    """Keeps spans in order; can be told to be away, to refuse or to hang."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.batches: list[int] = []
        self.unavailable_for = 0
        self.unknown_rollouts: set[str] = set()
        self.open = asyncio.Event()
        self.open.set()
        self.asked = asyncio.Event()

    async def add_many_spans(self, spans: Sequence[Span]) -> list[Span]:
        self.asked.set()
        await self.open.wait()
        if self.unavailable_for:
            self.unavailable_for -= 1
            raise StoreUnavailableError("away")
        for span in spans:
            if span.rollout_id in self.unknown_rollouts:
                raise NotFoundError(f"there is no rollout {span.rollout_id}")
            if span.name == "crash":
                raise ZeroDivisionError("a bug in the store")
        self.batches.append(len(spans))
        self.spans.extend(spans)
        return list(spans)

    async def query_spans(self, query: SpanQuery) -> Page[Span]:
        return Page[Span](items=[span for span in self.spans if query.rollout_id in (None, span.rollout_id)])

    async def get_many_span_sequence_ids(self, attempts: Sequence[tuple[str, str]]) -> list[int]:
        return [0] * len(attempts)


@pytest.fixture
async def spans() -> MemorySpans:
    return MemorySpans()


@pytest.fixture
async def tracer(spans: MemorySpans) -> AsyncIterator[Tracer]:
    exporter = StoreSpanExporter(spans, retry_delay_seconds=0.001, interval_seconds=0.01)
    async with Tracer(spans, exporter=exporter) as tracer:
        yield tracer
