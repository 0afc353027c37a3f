"""A chat request as Anthropic's: by hand after its documentation, and checked by the types of its own client."""

from __future__ import annotations

import orjson
import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from agl.proxy.canonical import upstream_chat
from agl.proxy.dialects.anthropic.outgoing import DEFAULT_LIMIT, message_request
from agl.proxy.dialects.anthropic_messages import AnthropicMessages
from agl.proxy.refusal import CallRefusedError

HELLO = {"model": "claude", "messages": [{"role": "user", "content": "hello"}]}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "weather", "description": "tells it", "parameters": SCHEMA, "strict": True}
TOOL = {"type": "function", "function": FUNCTION}
FORM = TypeAdapter(MessageCreateParamsNonStreaming)


def asked(sampling=None, **more):
    """What Anthropic is asked when a chat client asks this; its own client's types allow it."""
    request = message_request(upstream_chat(HELLO | more, sampling or {}))
    FORM.validate_python(request)
    return request


def test_a_plain_request_says_the_least():
    assert asked() == {
        "model": "claude",
        "max_tokens": DEFAULT_LIMIT,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
    }


def test_sampling_has_its_names_and_defaults_are_not_said():
    sampled = asked(temperature=0.5, top_p=0.9, max_tokens=7, stop="END", user="u", extra=None)
    assert (sampled["temperature"], sampled["top_p"], sampled["max_tokens"]) == (0.5, 0.9, 7)
    assert (sampled["stop_sequences"], sampled["metadata"]) == (["END"], {"user_id": "u"})
    forced = asked(
        {"temperature": 1.0, "top_p": 1.0, "max_tokens": 9}, temperature=0.2, max_completion_tokens=3
    )
    assert "temperature" not in forced
    assert "top_p" not in forced
    assert forced["max_tokens"] == 9


def test_what_keeps_books_or_changes_nothing_is_left_out():
    more = {"seed": 3, "store": True, "metadata": {"a": "b"}, "n": 1, "presence_penalty": 0, "logit_bias": {}}
    assert asked(**more) == asked()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2),
        ("frequency_penalty", 0.5),
        ("logit_bias", {"1": 1}),
        ("functions", [FUNCTION]),
        ("modalities", ["audio"]),
        ("response_format", {"type": "json_object"}),
        ("reasoning_effort", "endless"),
        ("tool_choice", {"type": "function"}),
        ("tools", [{"type": "custom", "custom": {"name": "x"}}]),
        ("unheard_of", 1),
    ],
)
def test_what_would_be_another_answer_is_refused_by_name(name, value):
    with pytest.raises(CallRefusedError) as caught:
        asked(**{"tools": [TOOL]} | {name: value})
    assert caught.value.status == 400
    assert (caught.value.param or "").startswith(name)


def test_functions_are_tools():
    assert asked(tools=[TOOL])["tools"] == [
        {"name": "weather", "description": "tells it", "input_schema": SCHEMA, "strict": True}
    ]
    bare = asked(tools=[{"type": "function", "function": {"name": "now"}}])["tools"]
    assert bare == [{"name": "now", "input_schema": {"type": "object", "properties": {}}}]


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        (None, None, None),
        ("auto", True, {"type": "auto"}),
        ("required", None, {"type": "any"}),
        ("none", False, {"type": "none"}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (
            {"type": "function", "function": {"name": "weather"}},
            False,
            {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
        ),
    ],
)
def test_the_choice_of_tools(choice, parallel, expected):
    request = asked(tools=[TOOL], tool_choice=choice, parallel_tool_calls=parallel)
    assert request.get("tool_choice") == expected


def test_a_choice_without_tools_is_not_said():
    assert "tool_choice" not in asked(tool_choice="auto", parallel_tool_calls=False)


def test_structured_output_effort_and_anthropics_own_thinking():
    form = {"type": "json_schema", "json_schema": {"name": "w", "schema": SCHEMA, "strict": True}}
    thinking = {"type": "enabled", "budget_tokens": 1024}
    request = asked(response_format=form, reasoning_effort="minimal", thinking=thinking, top_k=5)
    assert request["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}
    assert (request["thinking"], request["top_k"]) == (thinking, 5)
    assert asked(response_format={"type": "text"}, reasoning_effort="none") == asked()


texts = st.text(min_size=1, max_size=8)
users = st.builds(lambda said: {"role": "user", "content": said}, texts)
assistants = st.builds(lambda said: {"role": "assistant", "content": said}, texts)
conversations = st.lists(st.tuples(users, assistants), max_size=3)


@given(conversations, users, texts)
def test_the_way_to_anthropic_and_back_is_the_same_conversation(pairs, last, system):
    """The other direction has tests of its own."""
    messages = [{"role": "system", "content": system}, *(m for pair in pairs for m in pair), last]
    request = message_request({"model": "m", "messages": messages})
    assert AnthropicMessages().request(orjson.dumps(request)).chat["messages"] == messages
