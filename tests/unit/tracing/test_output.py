"""Log records of code in an attempt are kept with that attempt."""

import asyncio
import logging

from agl.tracing.output import AttemptLog
from agl.tracing.tracer import Tracer


async def texts(spans, tracer: Tracer) -> dict[str, str]:
    assert await tracer.flush()
    return {
        span.rollout_id: span.attributes["agl.output.text"]
        for span in spans.spans
        if span.name == "agl.output" and span.attributes["agl.output.stream"] == "log"
    }


async def test_each_attempt_keeps_its_own_records_from_tasks_and_threads(tracer: Tracer, spans) -> None:
    log = logging.getLogger("user.agent")

    async def attempt(name: str) -> None:
        with tracer.attempt(name, "a"):
            log.warning("task of %s", name)
            await asyncio.sleep(0)
            await asyncio.to_thread(log.error, "thread of %s", name)

    log.warning("outside of any")
    await asyncio.gather(attempt("r1"), attempt("r2"))
    found = await texts(spans, tracer)
    for name in ("r1", "r2"):
        first, second = found[name].splitlines()
        assert first.endswith(f"WARNING user.agent: task of {name}")
        assert second.endswith(f"ERROR user.agent: thread of {name}")


async def test_two_tracers_of_a_process_keep_a_record_once(tracer: Tracer, spans) -> None:
    async with Tracer(spans):
        with tracer.attempt("r1", "a"):
            logging.getLogger("x").warning("once")
    assert (await texts(spans, tracer))["r1"].count("once") == 1


async def test_an_endless_log_is_bounded_and_says_what_was_cut(tracer: Tracer, spans) -> None:
    with tracer.attempt("r1", "a"):
        for number in range(5_000):
            logging.getLogger("x").warning("line %d %s", number, "x" * 60)
    text = (await texts(spans, tracer))["r1"]
    assert len(text) < 70_000
    assert "line 0 " in text
    assert "line 4999 " in text
    assert "bytes left out ...]" in text


async def test_a_record_whose_arguments_do_not_fit_is_kept_as_written(tracer: Tracer, spans) -> None:
    with tracer.attempt("r1", "a"):
        logging.getLogger("x").handlers = []
        record = logging.LogRecord("x", logging.WARNING, "f.py", 1, "%d apples", ("many",), None)
        tracer._log_handler.handle(record)
    assert (await texts(spans, tracer))["r1"] == "WARNING x: %d apples\n"


async def test_an_attempt_that_logs_nothing_has_no_span_of_it(tracer: Tracer, spans) -> None:
    with tracer.attempt("r1", "a"):
        pass
    assert await texts(spans, tracer) == {}


async def test_records_are_no_longer_looked_at_when_the_tracer_is_closed(spans) -> None:
    before = list(logging.getLogger().handlers)
    async with Tracer(spans):
        assert len(logging.getLogger().handlers) == len(before) + 1
    assert logging.getLogger().handlers == before


def test_a_program_without_handlers_prints_its_warnings_as_ever(capsys) -> None:
    log = logging.getLogger("user.without_handlers")
    log.propagate = False  # the test runner's own handlers listen at the root
    log.handlers = [AttemptLog("one"), AttemptLog("two")]
    log.warning("heard")
    log.info("not heard")
    assert capsys.readouterr().err == "heard\n"
    log.addHandler(logging.NullHandler())  # somebody has decided what becomes of them
    log.warning("not printed")
    assert capsys.readouterr().err == ""
