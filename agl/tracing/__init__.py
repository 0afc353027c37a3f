"""OpenTelemetry in, spans out: attribution by context variable, the exporter into the store, what agents emit."""
