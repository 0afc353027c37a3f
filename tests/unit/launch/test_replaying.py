"""A replay compared with its record."""

from __future__ import annotations

import json
from typing import Any

from agl.launch.replaying import NOT_COMPARED, likeness, span_differences
from agl.types import Span, SpanEvent, SpanStatus
from agl.types import attributes as key


def call(
    number: int,
    asked: str,
    answered: str = "yes",
    *,
    agent: str | None = None,
    error: str | None = None,
    offset: int = 0,
    **more: Any,
) -> Span:
    """The n-th call: a user's message and the answer."""
    attributes: dict[str, Any] = {
        key.INPUT_MESSAGES: json.dumps([{"role": "user", "content": asked}]),
        key.OUTPUT_MESSAGES: json.dumps([{"role": "assistant", "content": answered}]),
        key.REQUEST_HASH: f"hash of {asked}",
        key.REQUEST_MODEL: "m",
        key.MISSING_IDS_CAUSE: "upstream_without_ids",
        **({key.AGENT: agent} if agent else {}),
        **({key.ERROR_TYPE: error} if error else {}),
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    return Span(
        span_id=f"{number + offset:016x}",
        trace_id="t" * 32,
        parent_id="root" if not offset else "other-root",
        name="chat m",
        kind="client",
        status=SpanStatus(code="error" if error else "ok"),
        attributes=attributes,
        resource={"service.name": "agl.proxy"},
        start_time_ns=number * 100 + offset,
        end_time_ns=number * 100 + 50 + offset,
        sequence_id=number,
    )


def root(span_id: str, **attributes: Any) -> Span:
    return Span(
        span_id=span_id, trace_id="t" * 32, name="agl.rollout", attributes=attributes, start_time_ns=1
    )


def test_what_differs_only_in_ids_times_and_delivery_is_identical() -> None:
    record = [root("root"), call(1, "a"), call(2, "b")]
    marks = {name.replace(".", "__"): "x" for name in sorted(NOT_COMPARED)}
    marks |= {"agl__replay": "hit", "agl__missing_ids_cause": "upstream_without_logprobs"}
    replay = [root("other-root"), call(1, "a", offset=7, **marks), call(2, "b", offset=7, **marks)]
    found = likeness(record, replay)
    assert (found.identical, found.num_calls, found.replayed) == (True, 2, 2)
    assert (found.calls, found.spans, found.transcript) == ([], [], [])


def test_every_other_attribute_counts_and_so_do_parents_events_and_status() -> None:
    for changed in (
        {"attributes": {**call(1, "a").attributes, "agl.policy_version": 2}},
        {"attributes": {**call(1, "a").attributes, key.REQUEST_HASH: "another"}},
        {"parent_id": None},
        {"kind": "internal"},
        {"status": SpanStatus(code="unset")},
        {"events": (SpanEvent(name="e", time_ns=1),)},
        {"name": "chat n"},
    ):
        record = [root("root"), call(1, "a")]
        replay = [root("root"), call(1, "a").model_copy(update=changed)]
        assert [one.side for one in span_differences(record, replay)] == ["record", "replay"], changed


def test_spans_that_differ_say_in_what_and_those_without_a_like_say_so() -> None:
    record = [root("root", reward=1.0), call(1, "a")]
    replay = [root("root", reward=0.5), call(1, "a"), call(2, "b")]
    found = span_differences(record, replay)
    assert [(one.side, one.name, one.attributes) for one in found] == [
        ("record", "agl.rollout", ["reward"]),
        ("replay", "agl.rollout", ["reward"]),
        ("replay", "chat m", []),
    ]


def test_a_call_that_asks_something_else_is_shown_with_what_was_asked_then_and_now() -> None:
    record = [call(1, "a"), call(2, "first line\nsecond line")]
    replay = [
        call(1, "a", agl__replay="hit"),
        call(2, "first line\nother line", error="replay_differs"),
    ]
    (found,) = likeness(record, replay).calls
    assert (found.number, found.agent, found.why) == (2, None, "call 2 asks something else than the record")
    assert found.lines == [
        "@@ -1,3 +1,3 @@",
        " user: first line",
        "-user: second line",
        "+user: other line",
        " gen_ai.request.model = m",
    ]


def test_a_call_that_went_to_the_model_instead_is_shown_too() -> None:
    replay = [call(1, "b", agl__replay="miss", gen_ai__request__temperature=0.5)]
    (found,) = likeness([call(1, "a")], replay).calls
    assert found.lines[-1] == "+gen_ai.request.temperature = 0.5"


def test_calls_count_by_agent_and_more_or_fewer_of_them_are_differences() -> None:
    record = [call(1, "a", agent="one"), call(2, "b", agent="two"), call(3, "c", agent="two")]
    replay = [
        call(1, "a", agent="one", agl__replay="hit"),
        call(2, "x", agent="one", error="replay_differs"),
        call(3, "b", agent="two", agl__replay="hit"),
    ]
    more, fewer = likeness(record, replay).calls
    assert (more.agent, more.number) == ("one", 2)
    assert more.why == "the record has 1 calls of this agent, and this is its call 2"
    assert (fewer.agent, fewer.number) == ("two", 3)
    assert fewer.why == "the agent made 1 calls, and the record has 2 of it"


def test_behind_the_call_from_which_the_model_answers_nothing_is_a_difference() -> None:
    record = [call(1, "a"), call(2, "b"), call(3, "c")]
    replay = [call(1, "a", agl__replay="hit")]
    assert [one.number for one in likeness(record, replay, from_call=3).calls] == [2]
    assert likeness(record, replay, from_call=2).calls == []


def test_a_recorded_failure_has_no_answer_to_give_again() -> None:
    record = [call(1, "a", error="500")]
    (found,) = likeness(record, [call(1, "a", error="replay_differs")]).calls
    assert found.why == "call 1 of the record failed: there is no answer to give again"


def test_a_failed_call_that_was_repeated_is_one_call_and_no_difference() -> None:
    record = [root("root"), call(1, "a", error="500"), call(2, "a"), call(3, "b")]
    replay = [root("root"), call(1, "a", agl__replay="hit"), call(2, "b", agl__replay="hit")]
    found = likeness(record, replay)
    assert (found.identical, found.num_calls, found.replayed) == (True, 2, 2)


def test_regrades_and_the_times_in_logs_are_no_differences() -> None:
    def log_of(text: str) -> Span:
        attributes = {key.OUTPUT_STREAM: "log", key.OUTPUT_TEXT: text}
        return Span(span_id="log", trace_id="t", name="agl.output", attributes=attributes, start_time_ns=2)

    regrade = Span(span_id="r", trace_id="t", name="agl.regrade", start_time_ns=3)
    record = [root("root"), log_of("2026-01-31 10:00:00,123 WARNING mine: late"), regrade]
    assert (
        span_differences(record, [root("root"), log_of("2027-02-01 11:11:11,999 WARNING mine: late")]) == []
    )
    assert span_differences(record, [root("root"), log_of("2027-02-01 11:11:11,999 WARNING mine: early")])


def test_the_conversation_is_compared_as_people_read_it() -> None:
    found = likeness([call(1, "a", "red")], [call(1, "a", "blue", agl__replay="miss")])
    assert found.transcript[-2:] == ["-assistant: red", "+assistant: blue"]
