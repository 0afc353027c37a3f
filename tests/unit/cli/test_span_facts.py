"""What a span is about, in a few words."""

from __future__ import annotations

from typing import Any

import pytest
from listed_records import NOON, made_call, made_span

from agl.cli.span_facts import call_facts, error_of, facts_of, reward_dimensions, seconds_of, shown_value
from agl.types import SpanEvent
from agl.types import attributes as key

OF = {"rollout_id": "r", "attempt_id": "a"}


def span(name: str, attributes: dict[str, Any]) -> Any:
    return made_span(1, name, **OF).model_copy(update={"attributes": attributes})


@pytest.mark.parametrize(
    ("name", "attributes", "facts"),
    [
        ("agl.reward", {key.REWARD_VALUE: 0.5, f"{key.REWARD_DIMENSION_PREFIX}style": 1.0}, "0.5  (style 1)"),
        ("agl.regrade", {key.REWARD_VALUE: 0.0, key.REGRADE_GRADER: "strict"}, "0  by strict"),
        ("agl.reward", {key.REWARD_VALUE: "odd\x1b"}, "odd "),
        ("agl.reward", {}, "-"),
        ("agl.output", {key.OUTPUT_STREAM: "stdout", key.OUTPUT_BYTES: 12}, "stdout  12 bytes"),
        ("agl.message", {key.MESSAGE_BODY: "first\nsecond"}, "first second"),
        ("agl.object", {key.OBJECT_JSON: '{"a": 1}'}, '{"a": 1}'),
        (
            "tool",
            {"agl.rollout_id": "r", "a": 1, "b": "x", "c": None, "d": [1], "e": 5},
            "a=1  b=x  c=null  d=[1]",
        ),
        ("chat m", {"gen_ai.system": "openai"}, "gen_ai.system=openai"),
    ],
)
def test_each_kind_of_span_says_what_matters_of_it(name: str, attributes: dict[str, Any], facts: str) -> None:
    assert facts_of(span(name, attributes)) == facts


def test_a_call_says_its_tokens_version_agent_and_end() -> None:
    call = made_call(
        1, [], {"role": "assistant", "content": "x"}, **OF, **{key.AGENT: "w", key.REPLAY: "hit"}
    )
    assert facts_of(call) == "v3  of w  12 in + 5 out  stop  from the record"
    assert call_facts(call) == "m v3  of w  12 in + 5 out  500ms  stop  from the record"
    assert facts_of(made_call(2, [], None, error="x", **OF)) == "failed: 502"


def test_an_error_has_the_words_of_its_status_its_exception_or_its_kind() -> None:
    failed = made_span(1, "s", error="it broke\nbadly", **OF)
    assert error_of(failed) == "it broke badly"
    silent = span("s", {})
    event = SpanEvent(
        name="exception",
        time_ns=int(NOON * 1e9),
        attributes={"exception.type": "KeyError", "exception.message": "'x'"},
    )
    assert error_of(silent.model_copy(update={"events": (event,)})) == "KeyError: 'x'"
    assert error_of(span("s", {key.ERROR_TYPE: "timeout"})) == "timeout"
    assert error_of(silent) == "error"


def test_times_and_values() -> None:
    assert seconds_of(made_span(1, "s", seconds=2.5, **OF)) == 2.5
    assert seconds_of(made_span(1, "s", seconds=None, **OF)) is None
    assert [shown_value(value) for value in (None, 1, 0.25, "x")] == ["-", "1", "0.25", "x"]
    assert reward_dimensions(span("r", {f"{key.REWARD_DIMENSION_PREFIX}a": 1, "other": 2})) == {"a": 1}
