from __future__ import annotations

from typing import Any

import pytest

from agl.errors import InferenceError
from agl.inference.chat import answer_tokens, encode_prompt, parse_request
from agl.inference.huggingface import load_tokenizer
from agl.types.policy import Policy

USER = {"role": "user", "content": "hi"}


@pytest.fixture(scope="module")
def tokenizer(policy: Policy) -> Any:
    return load_tokenizer(policy)


def parse(**parameters: Any) -> Any:
    return parse_request({"messages": [USER], **parameters}, model="policy")


def refused(**parameters: Any) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        parse(**parameters)
    return caught.value


def prompt(tokenizer: Any, **parameters: Any) -> str:
    return tokenizer.decode(encode_prompt(parse(**parameters), tokenizer))


def test_what_is_not_said_has_openais_defaults():
    chat = parse()
    assert (chat.temperature, chat.top_p, chat.top_k, chat.num_choices) == (1.0, 1.0, 0, 1)
    assert (chat.max_tokens, chat.stop, chat.seed, chat.logprobs, chat.tools) == (None, (), None, False, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logit_bias", {"5": 1}),
        ("frequency_penalty", 0.5),
        ("presence_penalty", -1),
        ("response_format", {"type": "json_schema", "json_schema": {}}),
        ("response_format", {"type": "json_object"}),
        ("tool_choice", "required"),
        ("functions", [{"name": "f"}]),
        ("top_logprobs", 3),
        ("reasoning_effort", "high"),
        ("repetition_penalty", 1.1),
        ("stream", True),
        ("no_such_parameter", 1),
    ],
)
def test_a_parameter_that_would_change_the_answer_is_refused_by_name(name: str, value: object):
    error = refused(**{name: value})
    assert error.status == 400
    assert f"`{name}`" in str(error)
    assert error.body["error"]["param"] == name


@pytest.mark.parametrize(
    "parameters",
    [
        {"user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "stream_options": None},
        {"stream": False, "frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "n": 1},
        {"response_format": {"type": "text"}, "tool_choice": "auto", "top_logprobs": 0, "logit_bias": None},
        {"return_token_ids": True},
    ],
)
def test_harmless_parameters_are_accepted(parameters: dict[str, Any]):
    parse(**parameters)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", True),
        ("temperature", "1"),
        ("top_p", 1.5),
        ("top_k", 1.5),
        ("n", 0),
        ("n", 129),
        ("max_tokens", 0),
        ("seed", "x"),
        ("stop", [""]),
        ("stop", 5),
        ("logprobs", 1),
        ("tools", {}),
        ("messages", []),
        ("messages", ["hi"]),
        ("messages", [{"content": "hi"}]),
    ],
)
def test_an_impossible_value_is_refused(name: str, value: object):
    assert refused(**{name: value}).status == 400


def test_another_model_does_not_exist_here():
    error = refused(model="gpt-4o")
    assert error.status == 404
    assert error.body["error"]["code"] == "model_not_found"
    assert "`policy`" in str(error)


def test_the_smaller_token_limit_holds():
    assert parse(max_tokens=5, max_completion_tokens=9).max_tokens == 5
    assert parse(max_completion_tokens=9).max_tokens == 9


def test_text_parts_are_joined_and_missing_content_is_empty(tokenizer: Any):
    parts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    silent = {"role": "assistant", "content": None}
    assert [m["content"] for m in parse(messages=[parts, silent]).messages] == ["ab", ""]


def test_images_are_refused():
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    error = refused(messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, image]}])
    assert error.status == 400
    assert "image_url" in str(error)
    assert error.body["error"]["param"] == "messages[0].content"


def test_the_prompt_is_the_rendered_template_once_encoded(tokenizer: Any):
    assert (
        prompt(tokenizer, messages=[{"role": "developer", "content": "be brief"}, USER])
        == "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_tools_reach_the_template_unless_forbidden(tokenizer: Any):
    tools = [{"type": "function", "function": {"name": "look"}}]
    with_tools = prompt(tokenizer, tools=tools)
    assert '{"type": "function", "function": {"name": "look"}}</tools>' in with_tools
    assert "look" not in prompt(tokenizer, tools=tools, tool_choice="none")


def test_earlier_tool_calls_are_rendered_as_objects(tokenizer: Any):
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    assert '<tool_call>{"name": "look", "arguments": {"at": "x"}}</tool_call>' in prompt(
        tokenizer, messages=messages
    )


def test_tool_call_arguments_that_are_not_json_are_refused():
    call = {"function": {"name": "look", "arguments": "{"}}
    assert refused(messages=[{"role": "assistant", "tool_calls": [call]}]).status == 400


def test_template_options_reach_the_template(tokenizer: Any):
    assert prompt(tokenizer, chat_template_kwargs={"hint": "think"}).endswith("assistant\nthink")


def test_a_template_that_refuses_the_messages_is_the_requests_fault(tokenizer: Any):
    chat = parse(messages=[{"role": "robot", "content": "beep"}])
    with pytest.raises(InferenceError, match="no robots") as caught:
        encode_prompt(chat, tokenizer)
    assert caught.value.status == 400


def test_an_answer_gets_what_it_asked_for_or_what_fits():
    assert answer_tokens(parse(max_tokens=10), 90, 128) == 10
    assert answer_tokens(parse(max_tokens=100), 90, 128) == 38
    assert answer_tokens(parse(), 127, 128) == 1


def test_a_prompt_that_leaves_no_room_is_too_long():
    with pytest.raises(InferenceError, match="maximum context length is 128 tokens") as caught:
        answer_tokens(parse(), 128, 128)
    assert caught.value.status == 400
    assert caught.value.body["error"]["code"] == "context_length_exceeded"


def completion(**parameters: Any) -> Any:
    return parse_request(parameters, model="policy")


def test_a_prompt_is_encoded_as_it_is(tokenizer: Any):
    ids = encode_prompt(completion(prompt="SELECT <|im_end|>"), tokenizer)
    assert ids == tokenizer.encode("SELECT <|im_end|>")
    assert tokenizer.decode(ids) == "SELECT <|im_end|>"
    assert encode_prompt(completion(prompt=[5, 7, 5]), tokenizer) == [5, 7, 5]


@pytest.mark.parametrize("prompt", [["a", "b"], [[1], [2]], [1, True], [1.0], {"a": 1}, 5])
def test_what_is_no_single_prompt_is_refused(prompt: object):
    with pytest.raises(InferenceError, match="one text or one list of token ids"):
        completion(prompt=prompt)


@pytest.mark.parametrize("prompt", ["", [], [-1], [100_000]])
def test_a_prompt_without_tokens_of_the_model_is_refused(tokenizer: Any, prompt: object):
    with pytest.raises(InferenceError, match="`prompt`") as caught:
        encode_prompt(completion(prompt=prompt), tokenizer)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "parameters",
    [
        {"messages": [USER]},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"chat_template_kwargs": {"a": 1}},
        {"echo": True},
        {"suffix": "x"},
        {"best_of": 2},
    ],
)
def test_what_a_prompt_cannot_have_is_refused_by_name(parameters: dict[str, Any]):
    with pytest.raises(InferenceError) as caught:
        completion(prompt="a", **parameters)
    assert caught.value.body["error"]["param"] == next(iter(parameters))


def test_what_clients_of_completions_always_send_is_accepted():
    completion(prompt="a", echo=False, best_of=1, suffix=None, tools=[], stop=None)


@pytest.mark.parametrize(
    "tool",
    [{"type": "web_search"}, {"type": "custom", "custom": {"name": "f"}}, {"function": {}}, "f", None],
)
def test_a_tool_that_is_no_function_is_refused(tool: object):
    assert refused(tools=[tool]).body["error"]["param"] == "tools[0]"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_a_tool_call_cannot_be_forced(choice: object):
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert refused(tools=tools, tool_choice=choice).body["error"]["param"] == "tool_choice"


def test_tools_that_may_not_be_called_are_not_shown(tokenizer: Any):
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert "<tools>" in prompt(tokenizer, tools=tools)
    assert "<tools>" not in prompt(tokenizer, tools=tools, tool_choice="none")
