"""Model calls as a person reads them."""

from __future__ import annotations

from typing import Any

import pytest
from listed_records import made_call, made_span

from agl.adapters.exchanges import exchanges_from_spans, message_text
from agl.types import attributes as key

OF = {"rollout_id": "r", "attempt_id": "a"}


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def test_each_call_shows_what_was_new_in_its_question_and_its_answer() -> None:
    first = [said("system", "be brief"), said("user", "2+2?")]
    second = [*first, {**said("assistant", "4"), "tool_calls": None}, said("user", "sure?")]
    calls = [
        made_call(2, second, said("assistant", "yes"), at=1, **OF),
        made_call(1, first, said("assistant", "4"), at=0, **OF),
        made_call(3, [said("system", "be brief"), said("user", "other")], None, at=2, error="no", **OF),
    ]
    exchanges = exchanges_from_spans([*calls, made_span(9, "agl.rollout", **OF)])
    assert [(one.repeated, len(one.asked), len(one.answers)) for one in exchanges] == [
        (0, 2, 1),
        (3, 1, 1),
        (1, 1, 0),
    ]
    assert message_text(exchanges[1].asked[0]) == "sure?"


def test_spans_of_other_libraries_count_where_no_proxy_recorded_the_calls() -> None:
    foreign = made_span(1, "chat gpt", **OF, gen_ai__input__messages='[{"role": "user", "content": "x"}]')
    assert [one.span.span_id for one in exchanges_from_spans([foreign])] == [foreign.span_id]
    recorded = made_call(2, [said("user", "x")], said("assistant", "y"), **OF)
    assert [one.span.span_id for one in exchanges_from_spans([foreign, recorded])] == [recorded.span_id]
    broken = foreign.model_copy(update={"attributes": {key.INPUT_MESSAGES: "not JSON"}})
    assert message_text(exchanges_from_spans([broken])[0].asked[0]) == "not JSON"
    odd = foreign.model_copy(update={"attributes": {key.INPUT_MESSAGES: [1, {"content": 2}]}})
    assert [message_text(one) for one in exchanges_from_spans([odd])[0].asked] == ["1", "2"]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"role": "user", "content": None}, ""),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]},
            "a\n[image_url]",
        ),
        (
            {"content": "", "tool_calls": [{"function": {"name": "f", "arguments": '{"x": 1}'}}]},
            '-> f({"x": 1})',
        ),
        ({"content": [{"type": "tool_use", "name": "f", "input": {"x": 1}}]}, '-> f({"x": 1})'),
        ({"content": [{"type": "tool_result", "content": [{"type": "text", "text": "ok"}]}]}, "ok"),
        ({"content": [{"type": "thinking", "thinking": "hm"}]}, "[thinking] hm"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "-> f({})"),
        ({"type": "function_call_output", "output": "42"}, "42"),
        ({"role": "user", "parts": [{"type": "text", "content": "otel"}]}, "otel"),
        ({"content": "", "refusal": "I will not"}, "[refusal] I will not"),
        ({"content": "", "tool_calls": ["odd"]}, "odd"),
    ],
)
def test_messages_are_read_in_every_shape(message: dict[str, Any], text: str) -> None:
    assert message_text(message) == text
