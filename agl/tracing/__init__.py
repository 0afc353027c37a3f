"""OpenTelemetry in, spans out: which attempt a span belongs to, `emit_reward` and friends, the way into the store."""
