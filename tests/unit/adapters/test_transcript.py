"""A transcript reads as the conversation went."""

from __future__ import annotations

import json

from recorded_spans import call_span

from agl.adapters.transcript import messages_from_spans, transcript
from agl.types import attributes as key


def test_the_last_call_and_its_answer_are_the_conversation() -> None:
    asked = [
        {"role": "user", "content": "How many?"},
        {"role": "assistant", "content": "SELECT 1"},
        {"role": "user", "content": "Rows:\n1"},
    ]
    spans = [
        call_span(
            1,
            [1],
            [2],
            **{key.INPUT_MESSAGES: json.dumps(asked[:1]), key.OUTPUT_MESSAGES: json.dumps(asked[1:2])},
        ),
        call_span(
            2,
            [1],
            [2],
            **{
                key.INPUT_MESSAGES: json.dumps(asked),
                key.OUTPUT_MESSAGES: json.dumps([{"role": "assistant", "content": "OK"}]),
            },
        ),
    ]
    assert [message["content"] for message in messages_from_spans(spans)] == [
        "How many?",
        "SELECT 1",
        "Rows:\n1",
        "OK",
    ]
    assert transcript(spans).splitlines() == [
        "     user: How many?",
        "assistant: SELECT 1",
        "     user: Rows:",
        "           1",
        "assistant: OK",
    ]


def test_long_lines_are_broken_between_words_and_nothing_is_lost() -> None:
    message = [{"role": "user", "content": "SELECT a FROM t"}]
    span = call_span(1, [1], [2], **{key.INPUT_MESSAGES: json.dumps(message)})
    assert transcript([span], width=10).splitlines() == ["     user: SELECT a", "           FROM t"]


def test_a_tool_call_is_shown_beside_the_words_and_without_any() -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "assistant", "content": "Let me look", "tool_calls": [call]},
    ]
    span = call_span(1, [1], [2], **{key.INPUT_MESSAGES: json.dumps(messages)})
    shown = transcript([span], width=200).splitlines()
    assert shown == [
        f"assistant: {json.dumps([call])}",
        "assistant: Let me look",
        f"           {json.dumps([call])}",
    ]


def test_control_characters_of_a_model_do_not_reach_the_terminal() -> None:
    message = [{"role": "user\x1b[2J", "content": "a\x1b[31mb\tc"}]
    span = call_span(1, [1], [2], **{key.INPUT_MESSAGES: json.dumps(message)})
    assert transcript([span]) == " user�[2J: a�[31mb c"
