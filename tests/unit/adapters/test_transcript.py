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


def test_long_lines_are_cut() -> None:
    message = [{"role": "user", "content": "x" * 50}]
    span = call_span(1, [1], [2], **{key.INPUT_MESSAGES: json.dumps(message)})
    assert transcript([span], width=10) == "     user: xxxxxxxxx…"
