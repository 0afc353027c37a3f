"""Which attempt a span of any OpenTelemetry provider belongs to.

Spans are marked when they start, by the context they start in, and handed to the attempt's sink when they end, wherever
that is. A span started outside of any attempt's context belongs to the attempt of its parent span, if that has one.
"""

from __future__ import annotations

import logging
from typing import cast
from weakref import WeakValueDictionary

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from agl.tracing.context import SpanSink, current_attempt
from agl.tracing.conversion import SINK
from agl.types.attributes import ATTEMPT_ID, ROLLOUT_ID

log = logging.getLogger(__name__)

_MARK = "_agl_attributes_spans"
"""On a provider: it already has a processor of ours. The SDK can neither list nor remove processors."""


class AttemptSpanProcessor(SpanProcessor):
    """Gives every span that starts inside an attempt to that attempt. One serves all runners of a process."""

    def __init__(self) -> None:
        self._sinks: WeakValueDictionary[str, SpanSink] = WeakValueDictionary()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Mark the span with its attempt."""
        attempt = current_attempt(parent_context)
        if attempt is not None:
            self._sinks[attempt.sink.sink_id] = attempt.sink
            span.set_attributes(
                {ROLLOUT_ID: attempt.rollout_id, ATTEMPT_ID: attempt.attempt_id, SINK: attempt.sink.sink_id}
            )
            return
        parent = trace.get_current_span(parent_context)
        inherited = parent.attributes if isinstance(parent, ReadableSpan) else None
        if inherited and SINK in inherited:
            span.set_attributes({key: inherited[key] for key in (ROLLOUT_ID, ATTEMPT_ID, SINK)})

    def on_end(self, span: ReadableSpan) -> None:
        """Hand the span to its attempt's sink."""
        attributes = span.attributes or {}
        sink_id = attributes.get(SINK)
        if sink_id is None:
            return
        sink = self._sinks.get(cast("str", sink_id))
        rollout_id, attempt_id = cast("str", attributes[ROLLOUT_ID]), cast("str", attributes[ATTEMPT_ID])
        if sink is None:
            log.error(
                "the span %r of rollout %s attempt %s is lost: it ended after its runner was gone",
                span.name,
                rollout_id,
                attempt_id,
            )
            return
        sink.put(span, rollout_id, attempt_id)


def new_provider() -> TracerProvider:
    """Return a provider whose spans go to their attempts; it records all, whatever the environment's sampler says."""
    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource({"service.name": "agl.agent"}),
        shutdown_on_exit=False,
        span_limits=SpanLimits(max_attributes=SpanLimits.UNSET, max_attribute_length=SpanLimits.UNSET),
    )
    return follow(provider)


def follow(provider: TracerProvider) -> TracerProvider:
    """Have the provider's spans go to their attempts as well as to where they go already. Return the provider."""
    if not hasattr(provider, _MARK):
        provider.add_span_processor(AttemptSpanProcessor())
        setattr(provider, _MARK, True)
    return provider


def follow_global(provider: TracerProvider) -> None:
    """Have libraries' spans go to attempts: through the program's global provider, or ``provider`` if it has none."""
    installed = trace.get_tracer_provider()
    if isinstance(installed, trace.ProxyTracerProvider):
        trace.set_tracer_provider(provider)
    elif isinstance(installed, TracerProvider):
        follow(installed)
    else:
        log.warning(
            "libraries' spans are not recorded: the global tracer provider is a %s, not the OpenTelemetry SDK's",
            type(installed).__name__,
        )
