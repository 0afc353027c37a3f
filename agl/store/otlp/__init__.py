"""OTLP/HTTP traces: OpenTelemetry's export requests as spans of the store. No web framework here.

What a span keeps: all that the record has fields for. What it has none for becomes attributes, as the specification
maps OpenTelemetry to other formats: ``otel.scope.name`` and ``.version``, ``otel.dropped_attributes_count`` (also
``_events_``, ``_links_``), ``w3c.tracestate``. Bytes become base64 text, and the doubles that JSON lacks become
the text that protobuf's JSON has for them: ``NaN``, ``Infinity``, ``-Infinity``. Integers are exact.

Sources: https://opentelemetry.io/docs/specs/otlp/ (1.10, section OTLP/HTTP) and
https://opentelemetry.io/docs/specs/otel/common/mapping-to-non-otlp/.
"""
