"""OpenTelemetry's spans as agl's: ids as hex, attributes as plain JSON, the keys of attribution taken off."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind as OtelKind
from opentelemetry.trace import StatusCode, format_span_id, format_trace_id

from agl.tracing.plain import clean_text, plain
from agl.types import Json, Span, SpanEvent, SpanKind, SpanLink, SpanStatus, SpanStatusCode
from agl.types.attributes import ATTEMPT_ID, ROLLOUT_ID

SINK = "agl.sink"
"""On a span of this process: which sink takes it. Not stored."""
_OWN_KEYS = frozenset((ROLLOUT_ID, ATTEMPT_ID, SINK))
_KINDS: Mapping[OtelKind, SpanKind] = {
    OtelKind.INTERNAL: "internal",
    OtelKind.SERVER: "server",
    OtelKind.CLIENT: "client",
    OtelKind.PRODUCER: "producer",
    OtelKind.CONSUMER: "consumer",
}
_CODES: Mapping[StatusCode, SpanStatusCode] = {
    StatusCode.UNSET: "unset",
    StatusCode.OK: "ok",
    StatusCode.ERROR: "error",
}
_UNSET = SpanStatus()


def span_from_otel(span: ReadableSpan, rollout_id: str, attempt_id: str) -> Span:
    """Return the ended span as a record of that attempt."""
    context = span.get_span_context()
    if context is None:
        raise ValueError(f"the span {span.name!r} has no context, so no ids")
    status = span.status
    return Span(
        span_id=format_span_id(context.span_id),
        trace_id=format_trace_id(context.trace_id),
        parent_id=format_span_id(span.parent.span_id) if span.parent is not None else None,
        name=clean_text(span.name),
        kind=_KINDS[span.kind],
        status=_UNSET
        if status.is_unset
        else SpanStatus(
            code=_CODES[status.status_code], description=status.description and clean_text(status.description)
        ),
        attributes=_attributes(span.attributes),
        events=tuple(
            SpanEvent(
                name=clean_text(event.name), time_ns=event.timestamp, attributes=_attributes(event.attributes)
            )
            for event in span.events
        ),
        links=tuple(
            SpanLink(
                trace_id=format_trace_id(link.context.trace_id),
                span_id=format_span_id(link.context.span_id),
                attributes=_attributes(link.attributes),
            )
            for link in span.links
        ),
        resource=_attributes(span.resource.attributes),
        start_time_ns=span.start_time or 0,
        end_time_ns=span.end_time,
        rollout_id=rollout_id,
        attempt_id=attempt_id,
    )


def _attributes(attributes: Mapping[str, object] | None) -> dict[str, Json]:
    given = attributes or {}
    return {clean_text(key): plain(value) for key, value in given.items() if key not in _OWN_KEYS}
