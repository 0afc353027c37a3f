from __future__ import annotations

from itertools import count

import pytest

from agl.inference.tools import parse_tool_calls


def parse(text: str) -> tuple[str, list[dict[str, object]]]:
    ids = count()
    return parse_tool_calls(text, new_id=lambda: f"call_{next(ids)}")


def test_calls_are_taken_out_of_the_text():
    text, calls = parse(
        'Let me see. <tool_call>\n{"name": "look", "arguments": {"at": "x", "n": 2}}\n</tool_call>\n'
        '<tool_call>{"name": "stop"}</tool_call>'
    )
    assert text == "Let me see."
    assert calls == [
        {
            "id": "call_0",
            "type": "function",
            "function": {"name": "look", "arguments": '{"at": "x", "n": 2}'},
        },
        {"id": "call_1", "type": "function", "function": {"name": "stop", "arguments": "{}"}},
    ]


def test_the_text_before_a_call_keeps_the_space_that_it_begins_with():
    assert parse('\n I look.\n<tool_call>{"name": "look"}</tool_call>')[0] == "\n I look."


def test_arguments_written_as_text_stay_text():
    _, calls = parse('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>')
    assert calls[0]["function"] == {"name": "f", "arguments": '{"a": 1}'}


def test_a_call_whose_end_tag_was_not_written_counts_if_it_is_whole():
    assert parse('<tool_call>{"name": "f"}')[1][0]["function"] == {"name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    "text",
    [
        "no call",
        '<tool_call>{"name": "f", "argum',
        "<tool_call>f(1)</tool_call>",
        "<tool_call>[1]</tool_call>",
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": "f"}</tool_call><tool_call>{broken}</tool_call>',
    ],
)
def test_text_without_whole_calls_is_left_as_it_is(text: str):
    assert parse(text) == (text, [])
