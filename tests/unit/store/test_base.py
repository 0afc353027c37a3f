"""The single forms of the contract are its many-forms with one element."""

from __future__ import annotations

from collections.abc import Sequence

from agl.store.base import SpanLog
from agl.types import Page, Span, SpanQuery


class Recorder(SpanLog):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    async def add_many_spans(self, spans: Sequence[Span]) -> list[Span]:
        self.spans += spans
        return list(spans)

    async def query_spans(self, query: SpanQuery) -> Page[Span]:
        return Page(items=self.spans)

    async def get_many_span_sequence_ids(self, attempts: Sequence[tuple[str, str]]) -> list[int]:
        return [len(rollout_id) for rollout_id, _ in attempts]


async def test_single_forms_are_many_forms_of_one() -> None:
    log = Recorder()
    span = Span(span_id="a", trace_id="b", name="s", start_time_ns=1)
    assert await log.add_span(span) == span
    owned = await log.add_otel_span("ro", "at", span)
    assert (owned.rollout_id, owned.attempt_id) == ("ro", "at")
    assert log.spans == [span, owned]
    assert await log.get_next_span_sequence_id("four", "at") == 4
