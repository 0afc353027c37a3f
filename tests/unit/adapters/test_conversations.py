"""Conversations out of files of OpenAI's and ShareGPT's format, and out of recorded calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recorded_spans import call_span

from agl.adapters.conversations import conversations_from_file, conversations_from_spans
from agl.errors import ConfigError
from agl.types import attributes as key

TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}


def written(folder: Path, *entries: Any, name: str = "chats.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in entries))
    return path


def test_openais_format_keeps_tools_and_calls_and_leaves_out_answers_of_weight_0(tmp_path: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Bad", "weight": 0},
        {"role": "assistant", "content": None, "tool_calls": [call], "weight": 1},
        {"role": "tool", "tool_call_id": "c", "content": "4"},
        {"role": "assistant", "content": "Four."},
    ]
    (found,) = conversations_from_file(written(tmp_path, {"messages": messages, "tools": [TOOL]}, "  "))
    assert found.name == f"{tmp_path / 'chats.jsonl'}:1"
    assert found.answers == [2, 4]
    assert found.tools == [TOOL]
    assert found.messages[2] == {"role": "assistant", "content": None, "tool_calls": [call]}
    assert all("weight" not in message for message in found.messages)


def test_sharegpts_format_becomes_openais(tmp_path: Path) -> None:
    entry = {
        "system": "Be kind.",
        "tools": json.dumps([{"name": "look", "parameters": {}}]),
        "conversations": [
            {"from": "human", "value": "Which?"},
            {"from": "function_call", "value": '{"name": "look", "arguments": {"day": "Mo"}}'},
            {"from": "observation", "value": "4"},
            {"from": "gpt", "value": "Four."},
        ],
    }
    (found,) = conversations_from_file(written(tmp_path, json.dumps([entry]), name="chats.json"))
    assert found.name.endswith("chats.json[0]")
    assert [message["role"] for message in found.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    function = {"name": "look", "arguments": {"day": "Mo"}}
    assert found.messages[2]["tool_calls"] == [{"type": "function", "function": function}]
    assert found.tools == [TOOL]
    assert found.answers == [2, 4]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{", r"chats\.jsonl:2 is not JSON"),
        ("[1]", r"chats\.jsonl:2 is not a JSON object"),
        ({"text": "x"}, r"chats\.jsonl:2 has neither messages"),
        ({"messages": ["x"]}, r"chats\.jsonl:2: every message must be an object with a role"),
        ({"messages": [], "tools": {"a": 1}}, r"chats\.jsonl:2: tools must be a list"),
        ({"conversations": [{"from": "alien", "value": "x"}]}, r"chats\.jsonl:2: from is 'alien'; known are"),
        ({"conversations": [{"from": "gpt"}]}, r"chats\.jsonl:2: every turn must have from and value"),
        ({"conversations": [{"from": "function_call", "value": "{}"}]}, "must be an object with name"),
    ],
)
def test_a_line_at_fault_is_named(tmp_path: Path, entry: Any, message: str) -> None:
    good = {"messages": [{"role": "user", "content": "Hi"}]}
    with pytest.raises(ConfigError, match=message):
        conversations_from_file(written(tmp_path, good, entry))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", "", "has no conversations"),
        ("a.json", "{}", "must be a list of conversations"),
    ],
)
def test_a_file_at_fault_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        conversations_from_file(written(tmp_path, text, name=name))
    with pytest.raises(ConfigError, match="cannot be read"):
        conversations_from_file(tmp_path / "none.jsonl")


def test_a_recorded_call_is_what_was_asked_and_the_answer_to_learn() -> None:
    asked, answer = [{"role": "user", "content": "Hi"}], {"role": "assistant", "content": "Ho"}
    texts = {key.INPUT_MESSAGES: json.dumps(asked), key.OUTPUT_MESSAGES: json.dumps([answer])}
    spans = [
        call_span(2, [1], [2], agent="b", **texts),
        call_span(1, [1], [2], agent="a", **texts, **{key.TOOL_DEFINITIONS: json.dumps([TOOL])}),
        call_span(3, [1], [2], agent="a"),  # recorded without texts
    ]
    first, second = conversations_from_spans(spans, name="r1")
    assert (first.messages, first.tools, first.answers) == ([*asked, answer], [TOOL], [1])
    assert (second.tools, second.name) == (None, "r1")
    assert len(conversations_from_spans(spans, name="r1", agents=["b"])) == 1
