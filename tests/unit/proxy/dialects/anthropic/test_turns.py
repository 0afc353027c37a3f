"""Chat messages as Anthropic's turns; what they must be is written down by hand after Anthropic's documentation."""

from __future__ import annotations

import pytest

from agl.proxy.dialects.anthropic.turns import system_and_turns
from agl.proxy.refusal import CallRefusedError

PNG = "data:image/png;base64,aGk="
PDF = "data:application/pdf;base64,aGk="


def text(said):
    return {"type": "text", "text": said}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def call(call_id, arguments, name="weather"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_system_and_developer_messages_are_the_system_prompt_wherever_they_stood():
    system, turns = system_and_turns(
        [
            {"role": "system", "content": " be kind\n"},
            {"role": "user", "content": "hi"},
            {"role": "developer", "content": [text("be short")]},
        ]
    )
    assert system == [text(" be kind\n"), text("be short")]
    assert turns == [user(text("hi"))]


def test_texts_keep_their_whitespace_and_empty_ones_are_left_out():
    _, turns = system_and_turns(
        [
            {"role": "user", "content": [text("  a "), text(""), text("b\n")]},
            {"role": "assistant", "content": ""},
            {"role": "assistant", "content": "c ", "refusal": None},
            {"role": "assistant", "content": None, "refusal": "no"},
        ]
    )
    assert turns == [
        user(text("  a "), text("b\n")),
        {"role": "assistant", "content": [text("c ")]},
        {"role": "assistant", "content": [text("no")]},
    ]


def test_parallel_calls_are_uses_and_their_results_begin_the_users_next_turn():
    _, turns = system_and_turns(
        [
            {"role": "user", "content": "weather?"},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [call("a", '{"city": "Oslo"}'), call("b", "")],
            },
            {"role": "tool", "tool_call_id": "a", "content": "cold"},
            {"role": "tool", "tool_call_id": "b", "content": ""},
            {"role": "user", "content": "and?"},
            {"role": "user", "content": "well?"},
        ]
    )
    assert turns[1]["content"] == [
        text("I look."),
        {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "b", "name": "weather", "input": {}},
    ]
    assert turns[2:] == [
        user(
            {"type": "tool_result", "tool_use_id": "a", "content": [text("cold")]},
            {"type": "tool_result", "tool_use_id": "b"},
            text("and?"),
        ),
        user(text("well?")),
    ]


def test_arguments_that_are_no_json_object_are_wrapped():
    _, turns = system_and_turns([{"role": "assistant", "tool_calls": [call("a", "{cut")]}])
    assert turns[0]["content"][0]["input"] == {"INVALID_JSON": "{cut"}


def test_images_and_files_are_sources():
    _, turns = system_and_turns(
        [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                    {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}},
                    {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
                ],
            }
        ]
    )
    assert turns == [
        user(
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
            {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
                "title": "a.pdf",
            },
        )
    ]


def test_a_turn_that_the_client_sends_back_as_anthropic_said_it_is_that_turn():
    own = [{"type": "thinking", "thinking": "hm", "signature": "s"}, text("hi")]
    said = {"role": "assistant", "content": "hi", "reasoning_content": "hm", "anthropic": {"content": own}}
    assert system_and_turns([said])[1] == [{"role": "assistant", "content": own}]
    unsigned = {name: value for name, value in said.items() if name != "anthropic"}
    assert system_and_turns([unsigned])[1] == [{"role": "assistant", "content": [text("hi")]}]


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "function", "content": "x"}, "messages.0.role"),
        ({"role": "user", "content": 3}, "messages.0.content"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages.0.content.0.text"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "messages.0.content.0"),
        ({"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}, "messages.0.content.0"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///x"}}]},
            "messages.0.content.0.image_url.url",
        ),
        ({"role": "tool", "content": "x"}, "messages.0.tool_call_id"),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {}}]},
            "messages.0.tool_calls.0",
        ),
    ],
)
def test_what_cannot_be_said_is_refused_with_its_place(message, place):
    with pytest.raises(CallRefusedError) as caught:
        system_and_turns([message])
    assert (caught.value.status, caught.value.param) == (400, place)
