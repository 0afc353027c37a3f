"""Recorded calls as conversations of OpenAI's fine-tuning format."""

from __future__ import annotations

from typing import Any

import pytest
from recorded_runs import call

from agl.export.chat_lines import Chat, chats_from_spans, problem_of
from agl.types import attributes as key

USER = {"role": "user", "content": "add 1 and 2"}
TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "3"}
DONE = {"role": "assistant", "content": "3"}


def test_calls_that_continue_each_other_are_one_conversation() -> None:
    sent_again = {**ASKS, "content": "", "refusal": None, "annotations": []}
    spans = [
        call(1, 1, [USER], {**ASKS, "reasoning_content": "hm"}, tools=TOOLS),
        call(1, 2, [USER, sent_again, RESULT], DONE, tools=TOOLS),
    ]
    (chat,) = chats_from_spans(spans)
    assert chat.as_json() == {"messages": [USER, ASKS, RESULT, DONE], "tools": TOOLS}


def test_other_conversations_of_the_attempt_stand_apart() -> None:
    other = {"role": "user", "content": "else"}
    spans = [call(1, 1, [USER], DONE), call(1, 2, [other], DONE), call(1, 3, [USER, DONE, other], DONE)]
    assert [chat.as_json()["messages"] for chat in chats_from_spans(spans)] == [
        [USER, DONE, other, DONE],
        [other, DONE],
    ]


def test_answers_that_stood_in_the_prompt_are_not_learned() -> None:
    example = [{"role": "user", "content": "0+0"}, {"role": "assistant", "content": "0"}]
    (chat,) = chats_from_spans([call(1, 1, [*example, USER], DONE)])
    assert chat.as_json()["messages"] == [example[0], {**example[1], "weight": 0}, USER, DONE]


def test_only_the_agents_that_are_asked_for() -> None:
    spans = [
        call(1, 1, [USER], DONE, **{key.AGENT: "writer"}),
        call(1, 2, [USER, DONE], DONE, **{key.AGENT: "judge"}),
    ]
    assert [chat.messages for chat in chats_from_spans(spans, agents=["wri.*"])] == [[USER, DONE]]


def test_text_in_parts_is_text_and_a_developer_is_the_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    image = [{"type": "image_url", "image_url": {"url": "data:"}}]
    asked = [{"role": "developer", "content": parts}, {"role": "user", "content": image}]
    (chat,) = chats_from_spans([call(1, 1, asked, DONE)])
    assert chat.messages[0] == {"role": "system", "content": "ab"}
    assert chat.messages[1] == {"role": "user", "content": image}
    assert problem_of(chat) is None


def test_arguments_as_an_object_become_text() -> None:
    loose = {"id": "c1", "function": {"name": "add", "arguments": {"a": 1}}}
    (chat,) = chats_from_spans([call(1, 1, [USER], {**ASKS, "tool_calls": [loose]}, tools=TOOLS)])
    assert chat.messages[1]["tool_calls"] == [CALL]


@pytest.mark.parametrize(
    ("messages", "tools", "problem"),
    [
        ([USER, ASKS, RESULT, DONE], TOOLS, None),
        ([USER, ASKS], TOOLS, None),
        ([USER, ASKS, DONE], TOOLS, "unanswered_tool_calls"),
        ([USER, ASKS, RESULT, RESULT, DONE], TOOLS, "stray_tool_message"),
        ([USER, {**RESULT, "tool_call_id": "c9"}, DONE], TOOLS, "stray_tool_message"),
        ([USER, ASKS], None, "undeclared_tool"),
        ([USER, ASKS], [{"type": "function", "function": {"name": "no spaces"}}], "bad_tools"),
        ([USER, ASKS], [{"type": "web_search"}], "bad_tools"),
        ([USER, {**ASKS, "tool_calls": [{**CALL, "id": None}]}], TOOLS, "bad_tool_calls"),
        ([USER, {**ASKS, "tool_calls": [CALL, CALL]}], TOOLS, "bad_tool_calls"),
        ([USER, {"role": "assistant", "content": ""}], None, "bad_content"),
        ([{"role": "user", "content": None}, DONE], None, "bad_content"),
        ([{"role": "robot", "content": "x"}, DONE], None, "unknown_role"),
    ],
)
def test_what_breaks_the_format_is_named(messages: Any, tools: Any, problem: str | None) -> None:
    assert problem_of(Chat(messages=messages, tools=tools, answers={len(messages) - 1})) == problem
