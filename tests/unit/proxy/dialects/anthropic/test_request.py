import orjson
import pytest
from anthropic_exchange import HELLO, WEATHER, read

from agl.proxy.dialects.anthropic.request import (
    chat_request,
    eager_tools,
    wants_thinking,
    wants_thinking_text,
)
from agl.proxy.json_body import object_from_body
from agl.proxy.refusal import CallRefusedError

PLAIN = {"model": "policy", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 64}


def added(**fields):
    """What the canonical request has more than that of ``HELLO``."""
    request = read(**fields)
    assert request.native_only is None
    assert request.native == {**HELLO, **fields}
    return {name: value for name, value in request.chat.items() if PLAIN.get(name) != value}


def test_a_plain_request_is_model_messages_and_limit():
    assert read().chat == PLAIN
    assert read().stream is False
    assert read(stream=True).stream is True
    assert "stream" not in read(stream=True).chat


def test_sampling_is_taken_over():
    asked = added(
        temperature=0.0, top_p=0.5, top_k=7, stop_sequences=["\n\n", "END"], metadata={"user_id": "u"}
    )
    assert asked == {"temperature": 0.0, "top_p": 0.5, "top_k": 7, "stop": ["\n\n", "END"], "user": "u"}


def test_nulls_and_empty_lists_say_nothing():
    assert (
        added(temperature=None, stop_sequences=[], tools=[], metadata=None, thinking=None, system=None) == {}
    )


def test_what_is_about_anthropics_own_servers_is_left_out():
    about = {
        "service_tier": "auto",
        "speed": "fast",
        "inference_geo": "eu",
        "container": None,
        "mcp_servers": [],
    }
    cache = {"cache_control": {"type": "ephemeral"}, "context_management": {"edits": []}, "diagnostics": {}}
    assert added(**about, **cache) == {}


def test_sampling_parameters_of_the_canonical_call_pass():
    asked = {"seed": 3, "min_p": 0.1, "stop_token_ids": [2], "chat_template_kwargs": {"a": 1}}
    assert added(**asked, n=4, logprobs=True) == asked


def test_tools_are_functions_and_their_caching_is_dropped():
    strict = {**WEATHER, "type": "custom", "strict": True, "cache_control": {"type": "ephemeral"}}
    bare = {"name": "now", "input_schema": {"type": "object"}, "defer_loading": False, "input_examples": []}
    tools = added(tools=[strict, bare])["tools"]
    assert tools == [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "The weather of a city.",
                "parameters": WEATHER["input_schema"],
                "strict": True,
            },
        },
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}},
    ]


@pytest.mark.parametrize(
    ("choice", "canonical"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        (
            {"type": "tool", "name": "weather"},
            {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
        ),
        (
            {"type": "auto", "disable_parallel_tool_use": True},
            {"tool_choice": "auto", "parallel_tool_calls": False},
        ),
        ({"type": "any", "disable_parallel_tool_use": False}, {"tool_choice": "required"}),
    ],
)
def test_the_choice_of_tools(choice, canonical):
    asked = added(tools=[WEATHER], tool_choice=choice)
    asked.pop("tools")
    assert asked == canonical


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "computer_20250124", "name": "computer", "display_width_px": 1, "display_height_px": 1},
        {"type": "mcp_toolset", "mcp_server_name": "files"},
    ],
)
def test_a_tool_that_anthropic_defines_is_named_and_kept_for_the_record(tool):
    request = read(tools=[WEATHER, tool])
    assert request.native_only.param == "tools.1"
    assert tool.get("name", "files") in str(request.native_only)
    assert request.chat["tools"][1] == tool


@pytest.mark.parametrize("name", ["mcp_servers", "container", "compaction"])
def test_state_on_anthropics_servers_is_named(name):
    assert read(**{name: [{"url": "https://a"}]}).native_only.param == name


def test_a_thread_may_begin_and_is_not_known_afterwards():
    assert added(thread={"type": "create"}) == {}
    assert added(thread=None) == {}
    for messages in (HELLO["messages"], []):
        request = read(thread={"type": "continue", "previous_message_id": "msg_1"}, messages=messages)
        assert (request.native_only.status, request.native_only.code) == (404, "thread_not_found")
        assert request.chat["messages"] == messages


def test_the_first_thing_that_only_anthropic_can_do_is_named():
    pdf = {"type": "document", "source": {"type": "url", "url": "https://a/b.pdf"}}
    request = read(container="c", messages=[{"role": "user", "content": [pdf]}])
    assert request.native_only.param == "messages.0.content.0"


def test_filling_the_prompt_cache_is_anthropics_own():
    assert read(max_tokens=0).native_only.param == "max_tokens"


@pytest.mark.parametrize(
    ("thinking", "on", "shown"),
    [
        ({"type": "enabled", "budget_tokens": 2048}, True, True),
        ({"type": "adaptive"}, True, True),
        ({"type": "adaptive", "display": "omitted"}, True, False),
        ({"type": "disabled"}, False, False),
    ],
)
def test_thinking_is_the_switch_of_chat_templates(thinking, on, shown):
    assert added(thinking=thinking) == {"chat_template_kwargs": {"enable_thinking": on}}
    assert wants_thinking({"thinking": thinking}) is on
    assert wants_thinking_text({"thinking": thinking}) is shown


def test_thinking_not_asked_for_is_the_models_own_default():
    assert added() == {}
    assert wants_thinking({}) is False


def test_a_clients_own_template_switches_win():
    given = {"enable_thinking": False, "other": 1}
    asked = added(thinking={"type": "adaptive"}, chat_template_kwargs=given)
    assert asked == {"chat_template_kwargs": given}


@pytest.mark.parametrize(
    ("effort", "known"), [("low", "low"), ("high", "high"), ("xhigh", "high"), ("max", "high")]
)
def test_effort_is_the_reasoning_effort_that_every_server_knows(effort, known):
    assert added(output_config={"effort": effort}) == {"reasoning_effort": known}


@pytest.mark.parametrize(
    "fields",
    [
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        {"output_format": {"type": "json_schema", "schema": {"type": "object"}}},
    ],
)
def test_structured_output_is_a_response_format(fields):
    schema = {"name": "output", "schema": {"type": "object"}, "strict": True}
    assert added(**fields) == {"response_format": {"type": "json_schema", "json_schema": schema}}


def test_a_last_turn_of_the_assistant_is_continued():
    turns = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "The answer is "}]
    chat = read(messages=turns).chat
    assert chat["messages"] == turns
    assert (chat["continue_final_message"], chat["add_generation_prompt"]) == (True, False)


def test_a_prefill_of_nothing_is_no_prefill():
    turns = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": []}]
    assert read(messages=turns).chat == {**PLAIN, "messages": turns[:1]}


def test_a_last_turn_that_calls_a_tool_is_not_continued():
    use = {"type": "tool_use", "id": "t", "name": "now", "input": {}}
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": [use]}]
    assert "continue_final_message" not in read(messages=turns).chat


def test_tools_with_eager_streaming_are_known_by_name():
    assert eager_tools({"tools": [{**WEATHER, "eager_input_streaming": True}, WEATHER]}) == {"weather"}
    assert eager_tools({}) == frozenset()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": 1}, "model"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"stop_sequences": [1]}, "stop_sequences"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_k": 1.5}, "top_k"),
        ({"metadata": "u"}, "metadata"),
        ({"tools": {}}, "tools"),
        ({"tools": ["weather"]}, "tools.0.name"),
        ({"tools": [{"name": "weather"}]}, "tools.0.input_schema"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.type"),
        ({"tool_choice": {"type": ["auto"]}}, "tool_choice.type"),
        ({"thinking": True}, "thinking"),
        ({"thinking": {"budget_tokens": 1}}, "thinking.type"),
        ({"output_config": {"effort": ["low"]}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
        ({"output_config": {"format": "json"}}, "output_config.format"),
        ({"system": 1}, "system"),
        ({"system": ["x"]}, "system.0"),
    ],
)
def test_a_wrong_field_is_named(fields, param):
    with pytest.raises(CallRefusedError) as caught:
        read(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    "body", [b"", b"nan", b'{"model": "\\ud800"}', b"[" * 5000, b"\x80", b"[]", b'"text"']
)
def test_what_is_no_json_object_is_refused(body):
    with pytest.raises(CallRefusedError) as caught:
        object_from_body(body)
    assert caught.value.status == 400


def test_a_count_needs_no_limit():
    body = {name: value for name, value in HELLO.items() if name != "max_tokens"}
    assert "max_tokens" not in chat_request(object_from_body(orjson.dumps(body)), [], needs_limit=False)
