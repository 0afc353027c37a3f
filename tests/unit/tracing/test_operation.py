"""operation records what went in and came out, and changes nothing else."""

import json

import pytest

from agl import operation
from agl.tracing.tracer import Tracer


@operation
def add(left: int, right: int = 2) -> int:
    return left + right


@operation("search", attributes={"index": "wiki"})
async def search(query: str) -> list[str]:
    return [query, inner()]


@operation
def inner() -> str:
    return "inner"


class Tool:
    @operation
    def use(self, value: float) -> float:
        return value * 2


@operation
def fail() -> None:
    raise ValueError("broken tool")


async def test_functions_record_arguments_and_results(tracer: Tracer, spans) -> None:
    with tracer.attempt("r1", "a1"):
        assert add(1) == 3
        assert add(left=1, right=5) == 6
        assert Tool().use(2.0) == 4.0
    await tracer.flush()
    recorded = [
        (
            span.name,
            json.loads(span.attributes["agl.operation.input"]),
            json.loads(span.attributes["agl.operation.output"]),
        )
        for span in spans.spans[:-1]
    ]
    assert recorded == [
        ("add", {"left": 1}, 3),
        ("add", {"left": 1, "right": 5}, 6),
        ("Tool.use", {"value": 2.0}, 4.0),
    ]


async def test_async_functions_are_recorded_with_their_children(tracer: Tracer, spans) -> None:
    with tracer.attempt("r1", "a1"):
        assert await search("x") == ["x", "inner"]
    await tracer.flush()
    child, parent, _ = spans.spans
    assert (child.name, parent.name, child.parent_id) == ("inner", "search", parent.span_id)
    assert parent.attributes["index"] == "wiki"


async def test_a_block_records_what_it_is_given(tracer: Tracer, spans) -> None:
    with tracer.attempt("r1", "a1"):
        with operation("sync", input={"q": 1}) as work:
            work.record_output([1])
        async with operation("async"):
            pass
    await tracer.flush()
    sync, async_, _ = spans.spans
    assert sync.attributes == {"agl.operation.input": '{"q": 1}', "agl.operation.output": "[1]"}
    assert (async_.name, async_.attributes) == ("async", {})


async def test_an_exception_is_recorded_and_goes_on(tracer: Tracer, spans) -> None:
    with tracer.attempt("r1", "a1"), pytest.raises(ValueError, match="broken tool"):
        fail()
    await tracer.flush()
    assert spans.spans[0].status.code == "error"
    assert spans.spans[0].events[0].attributes["exception.message"] == "broken tool"


async def test_outside_of_an_attempt_it_only_calls() -> None:
    assert add(1) == 3
    assert await search("x") == ["x", "inner"]
    with operation("block", input=1) as work:
        work.record_output(2)


async def test_wrong_arguments_fail_as_they_would_without_it(tracer: Tracer) -> None:
    with tracer.attempt("r1", "a1"), pytest.raises(TypeError, match="unexpected keyword"):
        add(1, wrong=2)  # type: ignore[call-arg]


def test_a_generator_is_refused_with_what_to_do() -> None:
    def steps():
        yield 1

    with pytest.raises(TypeError, match="use `with operation"):
        operation(steps)


def test_a_decorated_function_keeps_its_name() -> None:
    assert (add.__name__, search.__name__) == ("add", "search")
