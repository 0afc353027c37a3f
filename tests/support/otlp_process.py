"""A program with OpenTelemetry's own exporter and nothing of agl: it makes as many spans as told, and ends.

Where it delivers to, its resource, headers and compression come from the environment, as OpenTelemetry defines it.
"""

from __future__ import annotations

import sys

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanKind, Status, StatusCode


def main(num_children: int) -> None:
    """Make a span with children."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("somebody.else", "3.2")
    with tracer.start_as_current_span("root", kind=SpanKind.SERVER) as root:
        for number in range(num_children):
            with tracer.start_as_current_span(
                f"child {number}", links=[Link(root.get_span_context(), {"why": "root"})]
            ) as child:
                child.set_attribute("number", number)
                child.set_attribute("big", (1 << 63) - 1)
                child.set_attribute("parts", [0.5, 1.5])
                child.add_event("seen", {"at": number})
                child.set_status(Status(StatusCode.ERROR, "on purpose"))
    print(format(root.get_span_context().trace_id, "032x"))  # noqa: T201 - its one line of output
    provider.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
