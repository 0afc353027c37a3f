"""The canonical chat request -> Anthropic's request, for chat clients of a server that knows only Anthropic's format.

Where the two differ:

* Anthropic requires a limit of tokens; a request without one gets ``DEFAULT_LIMIT``.
* A temperature or top_p of 1 is what Anthropic's models do unasked, and newer ones refuse to be told: it is not said.
* ``reasoning_effort`` is ``output_config.effort``. Thinking itself has no word in chat; clients send Anthropic's own
  ``thinking`` in ``extra_body``.
* Seeds, ids and logprobs are not to be had; what only keeps books (``store``, ``metadata``, ...) is left out. What
  cannot be left out without another answer is refused by name.

Source: https://docs.claude.com/en/api/messages
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from agl.proxy.dialects.anthropic.errors import Json, object_or_empty, refused, unsupported
from agl.proxy.dialects.anthropic.turns import system_and_turns

DEFAULT_LIMIT = 8192
"""Tokens of an answer. Every model that Anthropic serves allows as many."""
_READ = frozenset(
    {"model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "user"}
    | {"tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort"}
)
_SAME = ("thinking", "top_k")
_BOOKS = frozenset(
    {"seed", "logprobs", "top_logprobs", "return_token_ids", "stream", "stream_options", "store", "metadata"}
    | {"service_tier", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "prediction"}
)
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
}
"""Parameters of which only these values change nothing, besides null."""
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh"}
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


def message_request(chat: Mapping[str, Any]) -> Json:
    """Return Anthropic's request for a canonical one.

    Raises:
        CallRefusedError: 400, which parameter Anthropic's models do not have, or is wrong.
    """
    for name, value in chat.items():
        known = name in _READ or name in _SAME or name in _BOOKS
        if not known and value is not None and value not in _NEUTRAL.get(name, ()):
            raise unsupported("Anthropic's models have no such parameter", name)
    system, turns = system_and_turns(chat["messages"])
    asked: Json = {"model": chat["model"]}
    asked["max_tokens"] = chat.get("max_completion_tokens") or chat.get("max_tokens") or DEFAULT_LIMIT
    if system:
        asked["system"] = system
    asked["messages"] = turns
    _add_sampling(asked, chat)
    _add_tools(asked, chat)
    output = _effort(chat) | _format(chat)
    if output:
        asked["output_config"] = output
    return asked


def _add_sampling(asked: Json, chat: Mapping[str, Any]) -> None:
    for name in ("temperature", "top_p"):
        if chat.get(name) not in (None, 1):
            asked[name] = chat[name]
    asked.update((name, chat[name]) for name in _SAME if chat.get(name) is not None)
    stop = chat.get("stop")
    if stop:
        asked["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if isinstance(chat.get("user"), str):
        asked["metadata"] = {"user_id": chat["user"]}


def _add_tools(asked: Json, chat: Mapping[str, Any]) -> None:
    tools = chat.get("tools")
    if not tools:
        return
    if not isinstance(tools, list):
        raise refused("a list of tools", "tools")
    listed = enumerate(cast("list[object]", tools))
    asked["tools"] = [_tool(object_or_empty(tool), f"tools.{index}") for index, tool in listed]
    choice = _choice(chat.get("tool_choice"))
    if chat.get("parallel_tool_calls") is False and choice.get("type") != "none":
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    if choice:
        asked["tool_choice"] = choice


def _tool(tool: Json, where: str) -> Json:
    function = object_or_empty(tool.get("function"))
    if tool.get("type") != "function" or not isinstance(function.get("name"), str):
        raise unsupported("Anthropic's models take tools of type `function`, with a name", where)
    given: Json = {"name": function["name"]}
    if function.get("description") is not None:
        given["description"] = function["description"]
    given["input_schema"] = function.get("parameters") or {"type": "object", "properties": {}}
    if function.get("strict") is not None:
        given["strict"] = function["strict"]
    return given


def _choice(choice: object) -> Json:
    if choice is None:
        return {}
    if isinstance(choice, str) and choice in _CHOICES:
        return {"type": _CHOICES[choice]}
    named = object_or_empty(object_or_empty(choice).get("function")).get("name")
    if not isinstance(named, str):
        raise refused("`auto`, `required`, `none`, or a function with a name", "tool_choice")
    return {"type": "tool", "name": named}


def _effort(chat: Mapping[str, Any]) -> Json:
    effort = chat.get("reasoning_effort")
    if effort in (None, "none"):
        return {}
    if not isinstance(effort, str) or effort not in _EFFORTS:
        raise refused(f"one of {', '.join(_EFFORTS)}", "reasoning_effort")
    return {"effort": _EFFORTS[effort]}


def _format(chat: Mapping[str, Any]) -> Json:
    form = object_or_empty(chat.get("response_format"))
    if form.get("type") in (None, "text"):
        return {}
    schema = object_or_empty(form.get("json_schema")).get("schema")
    if not isinstance(schema, dict):
        raise unsupported("Anthropic's models take a `json_schema` with a schema", "response_format")
    return {"format": {"type": "json_schema", "schema": schema}}
