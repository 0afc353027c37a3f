"""Anthropic's request -> the canonical chat request.

Where the two differ:

* ``thinking`` becomes the switch that chat templates know, ``chat_template_kwargs.enable_thinking``; without it the
  model's own default stands. ``budget_tokens`` is left out: no chat server takes one without being set up for it.
* ``output_config.effort`` is ``reasoning_effort``; what is above ``high`` becomes ``high``, the most that all know.
* A last message of the assistant is the beginning of the answer (prefill): vLLM's ``continue_final_message`` with
  ``add_generation_prompt`` false. Servers without these take it as a turn that is over.
* ``service_tier``, ``speed``, ``inference_geo``, context editing and caching are about Anthropic's own servers, and
  are left out. What cannot be left out without another answer (server tools, MCP servers, containers, ...) is named
  in ``native_only``.
* A ``thread`` is a conversation that Anthropic's servers hold. To begin one asks for nothing more than the answer; to
  continue one is refused as ``thread_not_found``, upon which Anthropic's clients send the whole conversation.
* vLLM's own sampling parameters are passed on, for clients that send them in ``extra_body``.

Source: https://docs.claude.com/en/api/messages
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from agl.proxy.dialects.anthropic.content import NativeOnly, chat_messages
from agl.proxy.dialects.anthropic.errors import Json, object_or_empty, refused, unsupported
from agl.proxy.refusal import CallRefusedError

_EXTRAS = (
    *(
        "seed",
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "logit_bias",
        "bad_words",
    ),
    *("min_tokens", "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "skip_special_tokens"),
    *("chat_template_kwargs", "structured_outputs", "response_format", "thinking_token_budget"),
)
"""Parameters of the canonical call that Anthropic's request does not have."""
_SERVER_SIDE = ("mcp_servers", "container", "compaction")
"""State on Anthropic's servers: without it the answer would be another one."""
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_request(native: Mapping[str, Any], native_only: NativeOnly, *, needs_limit: bool = True) -> Json:
    """Return the canonical request; what only Anthropic's servers can do is appended to ``native_only``.

    Raises:
        CallRefusedError: 400, what is wrong with which field.
    """
    model = native.get("model")
    if not isinstance(model, str) or not model:
        raise refused("the name of a model, as text", "model")
    chat: Json = {"model": model}
    if _part(native, "thread").get("type") == "continue":
        native_only.append(_thread_not_found())
    chat["messages"] = _messages(native, native_only)
    chat.update((name, native[name]) for name in _EXTRAS if native.get(name) is not None)
    _add_limits(chat, native, native_only, needs_limit=needs_limit)
    _add_sampling(chat, native)
    _add_tools(chat, native, native_only)
    _add_output(chat, native)
    _add_prefill(chat)
    for name in _SERVER_SIDE:
        if native.get(name):
            native_only.append(unsupported("this is understood by Anthropic's own servers only", name))
    return chat


def wants_thinking(native: Mapping[str, Any]) -> bool:
    """Return whether the client asked for thinking; else it expects none in the answer."""
    kind = _part(native, "thinking").get("type")
    return isinstance(kind, str) and kind != "disabled"


def wants_thinking_text(native: Mapping[str, Any]) -> bool:
    """Return whether the client asked for thinking with its text."""
    return wants_thinking(native) and _part(native, "thinking").get("display") != "omitted"


def eager_tools(native: Mapping[str, Any]) -> frozenset[str]:
    """Return the tools whose input is to be streamed as it comes, complete JSON or not."""
    tools = cast("list[Json]", native.get("tools") or [])
    return frozenset(str(tool.get("name")) for tool in tools if tool.get("eager_input_streaming") is True)


def _messages(native: Mapping[str, Any], native_only: NativeOnly) -> list[Json]:
    if native_only and native.get("messages") == []:  # a thread that goes on without a new message
        return []
    return chat_messages(native.get("system"), native.get("messages"), native_only)


def _thread_not_found() -> CallRefusedError:
    message = "thread: conversations are not held here; send the whole conversation"
    return CallRefusedError(message, status=404, code="thread_not_found", param="thread")


def _add_prefill(chat: Json) -> None:
    messages: list[Json] = chat["messages"]
    last = messages[-1] if messages else {"role": None}
    if last["role"] != "assistant" or last.get("tool_calls"):
        return
    if last == {"role": "assistant", "content": ""} and len(messages) > 1:
        messages.pop()  # an answer that begins with nothing is any answer
    else:
        chat["continue_final_message"], chat["add_generation_prompt"] = True, False


def _add_limits(chat: Json, native: Mapping[str, Any], native_only: NativeOnly, *, needs_limit: bool) -> None:
    limit = native.get("max_tokens")
    if limit is not None or needs_limit:
        if type(limit) is not int or limit < 0:
            raise refused("a whole number, at least 1", "max_tokens")
        if limit == 0:
            native_only.append(unsupported("0, to fill the prompt cache, is Anthropic's own", "max_tokens"))
        chat["max_tokens"] = limit
    stops = native.get("stop_sequences")
    if stops is None:
        return
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in cast("list[object]", stops)):
        raise refused("a list of texts", "stop_sequences")
    if stops:
        chat["stop"] = list(cast("list[str]", stops))


def _add_sampling(chat: Json, native: Mapping[str, Any]) -> None:
    for name in ("temperature", "top_p", "top_k"):
        value = native.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int if name == "top_k" else int | float):
            raise refused("a whole number" if name == "top_k" else "a number", name)
        chat[name] = value
    user = _part(native, "metadata").get("user_id")
    if isinstance(user, str):
        chat["user"] = user


def _add_tools(chat: Json, native: Mapping[str, Any], native_only: NativeOnly) -> None:
    tools = native.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise refused("a list of tools", "tools")
    if tools:
        listed = cast("list[object]", tools)
        chat["tools"] = [_tool(tool, f"tools.{index}", native_only) for index, tool in enumerate(listed)]
    choice = _part(native, "tool_choice")
    if not choice:
        return
    kind = choice.get("type")
    if kind == "tool" and isinstance(choice.get("name"), str):
        chat["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
    elif isinstance(kind, str) and kind in _CHOICES:
        chat["tool_choice"] = _CHOICES[kind]
    else:
        raise refused("`auto`, `any`, `none`, or `tool` with a name", "tool_choice.type")
    if choice.get("disable_parallel_tool_use") is True:
        chat["parallel_tool_calls"] = False


def _tool(tool: object, where: str, native_only: NativeOnly) -> Json:
    named = object_or_empty(tool)
    kind = named.get("type")
    if kind not in (None, "custom"):
        name = named.get("name") or named.get("mcp_server_name") or kind
        message = (
            f"the tool {name!r} of type {kind!r} is defined by Anthropic and known to its own servers only"
        )
        native_only.append(unsupported(message, where))
        return named
    if not isinstance(named.get("name"), str):
        raise refused("the tool's name, as text", f"{where}.name")
    if not isinstance(named.get("input_schema"), dict):
        raise refused("the JSON schema of the tool's input, an object", f"{where}.input_schema")
    function: Json = {"name": named["name"]}
    if named.get("description") is not None:
        function["description"] = named["description"]
    function["parameters"] = named["input_schema"]
    if named.get("strict") is not None:
        function["strict"] = named["strict"]
    return {"type": "function", "function": function}


def _add_output(chat: Json, native: Mapping[str, Any]) -> None:
    thinking = _part(native, "thinking")
    if thinking:
        if not isinstance(thinking.get("type"), str):
            raise refused("`enabled`, `adaptive` or `disabled`", "thinking.type")
        template = {"enable_thinking": wants_thinking(native)}
        chat["chat_template_kwargs"] = {**template, **object_or_empty(chat.get("chat_template_kwargs"))}
    config = _part(native, "output_config")
    effort = config.get("effort")
    if effort is not None:
        if not isinstance(effort, str) or effort not in _EFFORTS:
            raise refused("`low`, `medium`, `high`, `xhigh` or `max`", "output_config.effort")
        chat["reasoning_effort"] = _EFFORTS[effort]
    form = config.get("format") or native.get("output_format")
    if form is None:
        return
    schema = object_or_empty(form).get("schema")
    if not isinstance(schema, dict):
        raise refused("an object with type `json_schema` and a schema", "output_config.format")
    chat["response_format"] = {
        "type": "json_schema",
        "json_schema": {"name": "output", "schema": schema, "strict": True},
    }


def _part(native: Mapping[str, Any], name: str) -> Json:
    """Return an optional object of the request, empty when it is absent."""
    value = native.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise refused("an object", name)
    return cast("Json", value)
