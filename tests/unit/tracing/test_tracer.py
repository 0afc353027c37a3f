"""An attempt is recorded under one root span of its own trace."""

from opentelemetry import trace
from opentelemetry.trace import NoOpTracer

from agl.tracing.context import current_attempt
from agl.tracing.tracer import Tracer


async def test_an_attempt_has_one_root_span_in_a_trace_of_its_own(tracer: Tracer, spans) -> None:
    with (
        tracer.attempt("r1", "a1") as (first, _),
        tracer.attempt("r2", "a2", attributes={"n": 1}) as (second, _),
    ):
        assert current_attempt() is second
        second.tracer.start_span("child").end()
    await tracer.flush()
    child, root2, root1 = spans.spans
    assert [root1.parent_id, root2.parent_id, child.parent_id] == [None, None, root2.span_id]
    assert root1.trace_id != root2.trace_id == child.trace_id
    assert root2.attributes == {"n": 1}
    assert first.rollout_id == "r1"


async def test_the_programs_provider_is_left_alone_unless_asked_for(spans) -> None:
    before = trace.get_tracer_provider()
    async with Tracer(spans):
        assert trace.get_tracer_provider() is before


async def test_a_disabled_sdk_is_said(spans, monkeypatch, caplog) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with Tracer(spans) as tracer:
        with tracer.attempt("r1", "a1") as (attempt, _):
            assert isinstance(attempt.tracer, NoOpTracer)
    assert "OTEL_SDK_DISABLED" in caplog.text
