"""OpenTelemetry spans become agl spans without loss."""

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    format_span_id,
    format_trace_id,
)

from agl.tracing.conversion import span_from_otel
from agl.types import SpanLink, SpanStatus


def recorded(build) -> list[ReadableSpan]:
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    build(provider.get_tracer("test"))
    return list(memory.get_finished_spans())


def test_ids_times_kind_status_events_and_links_are_kept() -> None:
    linked = SpanContext(trace_id=0xABC, span_id=0xDEF, is_remote=True, trace_flags=TraceFlags(1))

    def build(tracer) -> None:
        with tracer.start_as_current_span("outer"):
            inner = tracer.start_span(
                "inner", kind=SpanKind.CLIENT, links=[Link(linked, {"why": "retry"})], start_time=5
            )
            inner.set_attributes({"list": ("a", "b"), "number": 3, "agl.rollout_id": "r", "agl.sink": "s"})
            inner.add_event("seen", {"n": 1}, timestamp=6)
            inner.set_status(StatusCode.ERROR, "bad")
            inner.end(end_time=9)

    inner_otel, outer_otel = recorded(build)
    inner, outer = span_from_otel(inner_otel, "r1", "a1"), span_from_otel(outer_otel, "r1", "a1")
    assert (inner.rollout_id, inner.attempt_id, inner.sequence_id) == ("r1", "a1", None)
    assert inner.span_id == format_span_id(inner_otel.context.span_id)
    assert inner.trace_id == outer.trace_id == format_trace_id(outer_otel.context.trace_id)
    assert inner.parent_id == outer.span_id
    assert outer.parent_id is None
    assert (inner.kind, outer.kind) == ("client", "internal")
    assert inner.status == SpanStatus(code="error", description="bad")
    assert outer.status == SpanStatus()
    assert inner.attributes == {"list": ["a", "b"], "number": 3}
    assert [(event.name, event.time_ns, event.attributes) for event in inner.events] == [
        ("seen", 6, {"n": 1})
    ]
    assert inner.links == (
        SpanLink(trace_id=f"{0xABC:032x}", span_id=f"{0xDEF:016x}", attributes={"why": "retry"}),
    )
    assert (inner.start_time_ns, inner.end_time_ns) == (5, 9)
    assert inner.resource == {"service.name": "shop"}


def test_attributes_are_json_safe() -> None:
    def build(tracer) -> None:
        tracer.start_span("s", attributes={"nan": float("nan"), "big": 2**70}).end()

    (span,) = recorded(build)
    assert span_from_otel(span, "r", "a").attributes == {"nan": "nan", "big": str(2**70)}
