import json
from pathlib import Path

import pytest
from responses_exchange import HELLO, WEATHER

from agl.proxy.dialects.responses.requests import client_request, items_of
from agl.proxy.refusal import CallRefusedError

DATA = Path(__file__).parents[4] / "data"
AGENTS_SDK = json.loads((DATA / "openai_agents_requests.json").read_text())["requests"]
CHAT_WEATHER = {
    "type": "function",
    "function": {name: WEATHER[name] for name in ("name", "description", "parameters", "strict")},
}
SEARCH = {"type": "web_search"}


def chat(**fields):
    request = client_request({**HELLO, **fields})
    assert request.native_only is None
    return request.chat


def test_a_text_is_the_user_s_message():
    assert chat() == {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}


def test_sampling_fields_are_passed_on_under_chat_s_names():
    asked = chat(temperature=0.2, top_p=0.9, max_output_tokens=64, user="u", seed=3, top_k=5, stop=["\n"])
    del asked["model"], asked["messages"]
    expected = {"temperature": 0.2, "top_p": 0.9, "user": "u", "seed": 3, "top_k": 5, "stop": ["\n"]}
    assert asked == {**expected, "max_completion_tokens": 64}


def test_what_keeps_books_at_the_provider_is_not_forwarded():
    fields = {
        "store": False,
        "metadata": {"a": "b"},
        "truncation": "auto",
        "max_tool_calls": 3,
        "stream": True,
    }
    assert chat(**fields, stream_options={"include_obfuscation": True}, background=False) == chat()


def test_null_is_the_same_as_nothing():
    nulls = dict.fromkeys(
        ["tools", "text", "reasoning", "include", "previous_response_id", "conversation", "odd"]
    )
    assert chat(**nulls) == chat()


def test_function_tools_and_their_choice_are_nested_as_in_chats():
    asked = chat(
        tools=[WEATHER], tool_choice={"type": "function", "name": "weather"}, parallel_tool_calls=False
    )
    assert asked["tools"] == [CHAT_WEATHER]
    assert asked["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert asked["parallel_tool_calls"] is False


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_a_choice_by_word_stays(choice):
    assert chat(tools=[WEATHER], tool_choice=choice)["tool_choice"] == choice


def test_without_tools_nothing_is_said_about_them():
    assert chat(tools=[], tool_choice="auto", parallel_tool_calls=True) == chat()


def test_allowed_tools_are_the_tools_that_the_model_sees():
    other = {**WEATHER, "name": "time"}
    allowed = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "weather"}],
    }
    asked = chat(tools=[other, WEATHER], tool_choice=allowed)
    assert (asked["tools"], asked["tool_choice"]) == ([CHAT_WEATHER], "required")


def test_a_tool_says_only_what_it_was_given():
    tool = {"type": "function", "name": "now", "parameters": None, "strict": None, "defer_loading": False}
    assert chat(tools=[tool])["tools"] == [{"type": "function", "function": {"name": "now"}}]


def test_a_json_schema_is_the_response_format():
    schema = {"name": "a", "schema": {"type": "object"}, "strict": True}
    asked = chat(text={"format": {"type": "json_schema", **schema}, "verbosity": "low"})
    assert asked["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert asked["verbosity"] == "low"
    assert chat(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}
    assert chat(text={"format": {"type": "text"}}) == chat()


def test_logprobs_are_asked_for_by_including_them():
    include = ["message.output_text.logprobs", "reasoning.encrypted_content"]
    asked = chat(include=include, top_logprobs=2)
    assert (asked["logprobs"], asked["top_logprobs"]) == (True, 2)
    assert chat(include=[], top_logprobs=2) == chat()
    assert "top_logprobs" not in chat(include=include)


def test_the_effort_of_reasoning_is_passed_on():
    assert chat(reasoning={"effort": "low", "summary": "auto"})["reasoning_effort"] == "low"
    assert chat(reasoning={"summary": "auto"}) == chat()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"input": 7}, "input"),
        ({"instructions": ["x"]}, "instructions"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_what_no_upstream_could_answer_is_refused_by_name(fields, param):
    with pytest.raises(CallRefusedError) as caught:
        client_request({**HELLO, **fields})
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"n": 2}, "n"),
        ({"messages": []}, "messages"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input[0]"),
        ({"tools": {}}, "tools"),
        ({"tools": ["weather"]}, "tools[0]"),
        ({"tools": [WEATHER, SEARCH]}, "tools[1]"),
        ({"tools": [{"type": "custom", "name": "patch"}]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{**WEATHER, "defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "any", "tools": [WEATHER]}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "time"}, "tools": [WEATHER]}, "tool_choice"),
        ({"tool_choice": {"type": "file_search"}, "tools": [WEATHER]}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "any", "tools": []}}, "tool_choice.mode"),
        ({"text": "json"}, "text"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"include": ["everything"]}, "include"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
    ],
)
def test_what_a_chat_completion_cannot_do_is_left_to_a_responses_provider(fields, param):
    refusal = client_request({**HELLO, **fields}).native_only
    assert refusal is not None
    assert (refusal.status, refusal.param) == (400, param)
    assert str(refusal).startswith(param)


def test_a_built_in_tool_is_named_in_its_refusal():
    assert "'web_search'" in str(client_request({**HELLO, "tools": [SEARCH]}).native_only)


def test_the_record_of_a_call_for_a_responses_provider_has_what_a_chat_can_hold():
    native = {
        **HELLO,
        "tools": [SEARCH, WEATHER],
        "tool_choice": {"type": "web_search"},
        "odd": 1,
        "stream": True,
    }
    request = client_request({**native, "background": True, "temperature": 0.5})
    assert request.chat == {**chat(), "temperature": 0.5, "tools": [CHAT_WEATHER]}
    assert request.native == {**native, "background": True, "temperature": 0.5}
    assert request.stream
    request = client_request({**native, "prompt": {"id": "p"}, "input": None})
    assert request.chat == {"model": "policy", "messages": [], "tools": [CHAT_WEATHER]}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_not_found"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "item_not_found"),
    ],
)
def test_what_refers_to_earlier_responses_is_not_for_a_chat_before_it_is_resolved(fields, code):
    refusal = client_request({**HELLO, **fields}).native_only
    assert refusal is not None
    assert (refusal.status, refusal.code) == (400, code)


def test_resolved_items_take_the_place_of_the_references():
    native = {**HELLO, "instructions": "Be brief.", "previous_response_id": "resp_1"}
    items = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "answer"},
        *items_of(native),
    ]
    request = client_request(native, items=items)
    assert request.native_only is None
    assert request.native == native
    assert [message["content"] for message in request.chat["messages"]] == [
        "Be brief.",
        "first",
        "answer",
        "hello",
    ]


def test_items_are_the_input_as_a_list():
    assert items_of({"input": "a"}) == [{"type": "message", "role": "user", "content": "a"}]
    assert items_of({"input": [{"role": "user", "content": "a"}]}) == [{"role": "user", "content": "a"}]
    assert items_of({}) == []


@pytest.mark.parametrize("run", AGENTS_SDK)
def test_every_request_of_the_agents_sdk_is_understood(run):
    for native in AGENTS_SDK[run]:
        asked = client_request({**native, "previous_response_id": None}).chat
        assert asked["messages"][0] == {"role": "system", "content": native["instructions"]}
        assert len(asked.get("tools", [])) == len(native["tools"])


def test_the_agents_sdk_s_second_request_holds_the_first_answer_as_the_model_gave_it():
    first, second = (client_request(native).chat for native in AGENTS_SDK["tools"])
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert second["messages"][len(first["messages"]) :] == [
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Zürich"}'},
                },
                {
                    "id": "call_2",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city":"Oslo","unit":"F"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "18 C in Zürich\n"},
        {"role": "tool", "tool_call_id": "call_2", "content": "18 F in Oslo\n"},
    ]
