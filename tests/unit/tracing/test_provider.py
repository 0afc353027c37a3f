"""Spans of any provider go to the attempt in whose context they start."""

import asyncio
import threading

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from agl import emit_message
from agl.tracing.provider import follow, follow_global, new_provider
from agl.tracing.tracer import Tracer


async def test_spans_of_the_users_own_provider_are_attributed_and_still_go_to_the_user(
    tracer: Tracer, spans
) -> None:
    memory = InMemorySpanExporter()
    mine = TracerProvider(shutdown_on_exit=False)
    mine.add_span_processor(SimpleSpanProcessor(memory))
    library = follow(mine).get_tracer("library")
    with tracer.attempt("r1", "a1"), library.start_as_current_span("inside"):
        pass
    library.start_span("outside").end()
    await tracer.flush()
    assert [span.name for span in memory.get_finished_spans()] == ["inside", "outside"]
    inside, root = spans.spans
    assert (inside.name, inside.rollout_id, inside.attempt_id) == ("inside", "r1", "a1")
    assert (inside.trace_id, inside.parent_id) == (root.trace_id, root.span_id)


async def test_following_a_provider_twice_records_its_spans_once(tracer: Tracer, spans) -> None:
    mine = follow(follow(TracerProvider(shutdown_on_exit=False)))
    with tracer.attempt("r1", "a1"):
        mine.get_tracer("library").start_span("once").end()
    await tracer.flush()
    assert [span.name for span in spans.spans] == ["once", "agl.rollout"]


async def test_libraries_on_the_global_provider_are_recorded_after_the_explicit_step(
    tracer: Tracer, spans
) -> None:
    library = trace.get_tracer("library")
    follow_global(new_provider())
    with tracer.attempt("r1", "a1"):
        library.start_span("from the library").end()
    await tracer.flush()
    assert [span.name for span in spans.spans] == ["from the library", "agl.rollout"]


async def test_a_span_that_ends_elsewhere_belongs_to_where_it_started(tracer: Tracer, spans) -> None:
    library = follow(TracerProvider(shutdown_on_exit=False)).get_tracer("library")
    with tracer.attempt("r1", "a1"):
        span = library.start_span("long")
    with tracer.attempt("r2", "a2"):
        span.end()
    await tracer.flush()
    assert {span.name: span.rollout_id for span in spans.spans if span.name == "long"} == {"long": "r1"}


async def test_a_plain_thread_with_the_parents_otel_context_inherits_the_attempt(
    tracer: Tracer, spans
) -> None:
    library = follow(TracerProvider(shutdown_on_exit=False)).get_tracer("library")

    def work(parent: otel_context.Context) -> None:
        library.start_span("in a plain thread", context=parent).end()
        otel_context.attach(parent)
        emit_message("there too")

    with tracer.attempt("r1", "a1"):
        thread = threading.Thread(target=work, args=(otel_context.get_current(),))
        thread.start()
        await asyncio.to_thread(thread.join)
    await tracer.flush()
    assert {span.name: span.rollout_id for span in spans.spans} == {
        "in a plain thread": "r1",
        "agl.message": "r1",
        "agl.rollout": "r1",
    }


async def test_a_span_with_nothing_but_a_parent_belongs_to_the_parents_attempt(tracer: Tracer, spans) -> None:
    library = follow(TracerProvider(shutdown_on_exit=False)).get_tracer("library")
    with tracer.attempt("r1", "a1"):
        parent = library.start_span("parent")
    library.start_span("child", context=trace.set_span_in_context(parent, otel_context.Context())).end()
    parent.end()
    await tracer.flush()
    assert [(span.name, span.rollout_id) for span in spans.spans[1:]] == [("child", "r1"), ("parent", "r1")]


async def test_two_tracers_of_a_process_do_not_mix(tracer: Tracer, spans) -> None:
    other_spans = type(spans)()
    library = follow(TracerProvider(shutdown_on_exit=False)).get_tracer("library")
    async with Tracer(other_spans) as other:
        with tracer.attempt("r1", "a1"):
            library.start_span("one").end()
        with other.attempt("r2", "a2"):
            library.start_span("two").end()
        await tracer.flush()
        await other.flush()
    assert [span.name for span in spans.spans] == ["one", "agl.rollout"]
    assert [span.name for span in other_spans.spans] == ["two", "agl.rollout"]


async def test_a_parent_that_is_not_sampled_hides_nothing_of_ours(tracer: Tracer, spans) -> None:
    unsampled = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False).get_tracer("user")
    with unsampled.start_as_current_span("user"), tracer.attempt("r1", "a1") as (attempt, _):
        attempt.tracer.start_span("ours").end()
    await tracer.flush()
    assert [span.name for span in spans.spans] == ["ours", "agl.rollout"]


async def test_a_span_that_ends_after_its_runner_is_gone_is_logged(spans, caplog) -> None:
    library = follow(TracerProvider(shutdown_on_exit=False)).get_tracer("library")
    async with Tracer(spans) as tracer:
        with tracer.attempt("r1", "a1"):
            span = library.start_span("too long")
    span.end()
    assert tracer.counts.lost == {"exporter closed": 1}
    assert "too long of rollout r1" in caplog.text
