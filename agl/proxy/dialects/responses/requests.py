"""A request of the Responses API -> the canonical chat request. Pure.

What a chat completion cannot do is refused by name, never ignored, unless a Responses provider is to answer: built-in
tools, background runs, conversations and prompts kept at the provider, unknown fields. What only keeps books
(``store``, ``metadata``, ``truncation``, ...) is echoed in the answer and not forwarded; ``truncation: auto`` drops
nothing here, so a too long prompt is the upstream's error. Sampling parameters that chat servers know beyond OpenAI's
(``seed``, ``top_k``, ...) are passed on.

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from typing import Any, cast

from agl.proxy.dialects.base import ClientRequest
from agl.proxy.dialects.responses.items import messages_from_items, refused
from agl.proxy.dialects.responses.nodes import text_of
from agl.proxy.refusal import CallRefusedError

_SAME_IN_CHAT = frozenset(
    {"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "temperature"}
    | {"top_p", "user"}
)
_CHAT_ONLY = frozenset(
    {
        "cache_salt",
        "chat_template_kwargs",
        "frequency_penalty",
        "logit_bias",
        "min_p",
        "min_tokens",
        "priority",
    }
    | {"presence_penalty", "repetition_penalty", "seed", "stop", "top_k"}
)
"""No fields of the Responses API; clients send them in the SDK's ``extra_body``."""
_READ_OR_ECHOED = frozenset(
    {"include", "input", "instructions", "max_output_tokens", "max_tool_calls", "metadata", "model"}
    | {"parallel_tool_calls", "previous_response_id", "prompt_cache_options", "reasoning", "store", "stream"}
    | {"stream_options", "text", "tool_choice", "tools", "top_logprobs", "truncation"}
)
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "access_programs": ({},),
    "background": (False,),
    "background_options": ({},),
    "context_management": ([],),
    "conversation": (),
    "image": ({},),
    "moderation": (),
    "prompt": (),
}
"""Fields of which only these values are possible, besides null."""
_REASONING_NEUTRAL = {"context": ("auto",), "mode": ("standard",)}
_LOGPROBS = "message.output_text.logprobs"
_INCLUDES = frozenset(
    {"code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results"}
    | {"message.input_image.image_url", "reasoning.encrypted_content", "web_search_call.action.sources"}
    | {"web_search_call.results", _LOGPROBS}
)
"""All but the logprobs are of items that a chat upstream never gives."""
_TOOL_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "allowed_callers": (["direct"],),
    "async": (False,),
    "defer_loading": (False,),
}


def client_request(native: dict[str, Any], *, items: list[object] | None = None) -> ClientRequest:
    """Return the request in a body; what only a Responses provider can do is its ``native_only``.

    Args:
        native: the body.
        items: the whole input, where the body says it by reference to earlier Responses.

    Raises:
        CallRefusedError: 400, naming the field that is wrong for any upstream.
    """
    stream = native.get("stream")
    if not isinstance(stream, bool | None):
        raise refused("true or false", param="stream", code="invalid_type")
    whole = native if items is None else {**native, "input": items, "previous_response_id": None}
    native_only: CallRefusedError | None = None
    try:
        chat = _chat(whole, lenient=False)
    except CallRefusedError as error:
        native_only = error
        chat = _chat(whole, lenient=True)
    return ClientRequest(chat=chat, stream=bool(stream), native=native, native_only=native_only)


def unknown_response(response_id: object) -> CallRefusedError:
    """Return OpenAI's refusal of a ``previous_response_id``."""
    message = (
        f"Previous response with id '{response_id}' not found. An attempt can go on from its own responses that were "
        "not asked for with store: false; send the conversation as input"
    )
    return CallRefusedError(
        message, status=400, code="previous_response_not_found", param="previous_response_id"
    )


def _chat(native: Mapping[str, Any], *, lenient: bool) -> dict[str, Any]:
    """Return the canonical request of a body; ``lenient`` leaves out what it cannot hold, in place of refusing it."""
    model = native.get("model")
    if not isinstance(model, str) or not model:
        raise refused("the name of a model, as text", param="model", code="invalid_type")
    chat: dict[str, Any] = {"model": model, "messages": _messages(native, lenient=lenient)}
    passed_on = _SAME_IN_CHAT | _CHAT_ONLY
    chat.update((name, value) for name, value in native.items() if name in passed_on and value is not None)
    if native.get("max_output_tokens") is not None:
        chat["max_completion_tokens"] = native["max_output_tokens"]
    readers: tuple[Callable[[Mapping[str, Any]], dict[str, Any]], ...]
    readers = (_checked, _tools_lenient if lenient else _tools, _text_format, _reasoning, _logprobs)
    for read in readers:
        with suppress(CallRefusedError) if lenient else nullcontext():
            chat.update(read(native))
    return chat


def items_of(native: Mapping[str, Any]) -> list[object]:
    """Return the input as items.

    Raises:
        CallRefusedError: 400, it is neither text nor a list.
    """
    given = native.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    if given is not None and not isinstance(given, list):
        raise refused("text or a list of items", param="input", code="invalid_type")
    return cast("list[object]", given or [])


def asks_for_logprobs(native: Mapping[str, Any]) -> bool:
    """Whether the answer is to carry the logprobs of its text."""
    include = native.get("include")
    return isinstance(include, list) and _LOGPROBS in include


def _messages(native: Mapping[str, Any], *, lenient: bool) -> list[dict[str, Any]]:
    instructions = native.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise refused("a text", param="instructions", code="invalid_type")
    items = items_of(native)
    if not items and native.get("previous_response_id") is None and not lenient:
        raise refused(
            "text or a list with at least one item", param="input", code="missing_required_parameter"
        )
    return messages_from_items(instructions, items, lenient=lenient)


def _checked(native: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse fields that would change the answer and cannot be translated."""
    if native.get("previous_response_id") is not None:
        raise unknown_response(native["previous_response_id"])
    known = _SAME_IN_CHAT | _CHAT_ONLY | _READ_OR_ECHOED
    for name, value in native.items():
        if value is None or name in known:
            continue
        if name not in _NEUTRAL:
            raise refused("not a field of the Responses API", param=name, code="unknown_parameter")
        if value not in _NEUTRAL[name]:
            message = "a model that is reached over chat completions cannot do this; leave it out"
            raise refused(message, param=name, code="unsupported_parameter")
    return {}


def _tools(native: Mapping[str, Any]) -> dict[str, Any]:
    given = _list(native, "tools")
    return _tool_fields(native, [_tool(tool, f"tools[{index}]") for index, tool in enumerate(given)])


def _tools_lenient(native: Mapping[str, Any]) -> dict[str, Any]:
    tools: list[dict[str, Any]] = []
    for index, tool in enumerate(_list(native, "tools")):
        with suppress(CallRefusedError):
            tools.append(_tool(tool, f"tools[{index}]"))
    try:
        return _tool_fields(native, tools)
    except CallRefusedError:
        return {"tools": tools} if tools else {}


def _tool_fields(native: Mapping[str, Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the fields about tools; none without tools, where chat servers refuse them."""
    choice = native.get("tool_choice")
    if isinstance(choice, dict) and cast("dict[str, Any]", choice).get("type") == "allowed_tools":
        tools, choice = _allowed(cast("dict[str, Any]", choice), tools)
    elif isinstance(choice, dict):
        choice = _forced(cast("dict[str, Any]", choice), tools)
    elif choice not in (None, "auto", "none", "required"):
        raise refused("auto, none, required or a function", param="tool_choice")
    if not tools:
        if choice not in (None, "auto", "none"):
            raise refused("there are no tools to choose from", param="tool_choice")
        return {}
    fields: dict[str, Any] = {"tools": tools}
    if choice is not None:
        fields["tool_choice"] = choice
    if native.get("parallel_tool_calls") is not None:
        fields["parallel_tool_calls"] = native["parallel_tool_calls"]
    return fields


def _tool(tool: object, where: str) -> dict[str, Any]:
    if not isinstance(tool, Mapping):
        raise refused("each tool is an object", param=where, code="invalid_type")
    tool = cast("Mapping[str, Any]", tool)
    if tool.get("type") != "function":
        message = (
            f"the tool {tool.get('type')!r} runs at its provider; a model that is reached over chat completions has "
            "function tools only"
        )
        raise refused(message, param=where, code="unsupported_value")
    if not isinstance(tool.get("name"), str):
        raise refused("a text", param=f"{where}.name", code="invalid_type")
    for name, values in _TOOL_NEUTRAL.items():
        if tool.get(name) is not None and tool[name] not in values:
            raise refused(
                "chat completions know no such tools", param=f"{where}.{name}", code="unsupported_value"
            )
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {n: tool[n] for n in names if tool.get(n) is not None}}


def _forced(choice: Mapping[str, Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    if choice.get("type") != "function":
        message = f"the tool {choice.get('type')!r} runs at its provider; choose a function"
        raise refused(message, param="tool_choice", code="unsupported_value")
    name = choice.get("name")
    if name not in [tool["function"]["name"] for tool in tools]:
        raise refused(f"no function tool is named {name!r}", param="tool_choice")
    return {"type": "function", "function": {"name": name}}


def _allowed(choice: Mapping[str, Any], tools: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], object]:
    """Return the tools that the choice allows and its mode; chat servers know no list of allowed tools."""
    allowed = [
        cast("Mapping[str, Any]", tool) for tool in _list(choice, "tools") if isinstance(tool, Mapping)
    ]
    names = {text_of(tool.get("name")) for tool in allowed if tool.get("type") == "function"}
    mode = choice.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise refused("auto or required", param="tool_choice.mode")
    return [tool for tool in tools if tool["function"]["name"] in names], mode


def _text_format(native: Mapping[str, Any]) -> dict[str, Any]:
    text = _object(native, "text")
    fields: dict[str, Any] = {}
    if text.get("verbosity") is not None:
        fields["verbosity"] = text["verbosity"]
    form = _object(text, "format")
    kind = form.get("type", "text")
    if kind == "json_schema":
        names = ("name", "description", "schema", "strict")
        schema = {name: form[name] for name in names if form.get(name) is not None}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif kind == "json_object":
        fields["response_format"] = {"type": "json_object"}
    elif kind != "text":
        raise refused("text, json_schema or json_object", param="text.format.type")
    return fields


def _reasoning(native: Mapping[str, Any]) -> dict[str, Any]:
    reasoning = _object(native, "reasoning")
    for name, values in _REASONING_NEUTRAL.items():
        if reasoning.get(name) is not None and reasoning[name] not in values:
            raise refused(
                "chat completions know no such setting", param=f"reasoning.{name}", code="unsupported_value"
            )
    return {} if reasoning.get("effort") is None else {"reasoning_effort": reasoning["effort"]}


def _logprobs(native: Mapping[str, Any]) -> dict[str, Any]:
    for name in _list(native, "include"):
        if not isinstance(name, str) or name not in _INCLUDES:
            raise refused(f"{name!r} cannot be included", param="include", code="unsupported_value")
    if not asks_for_logprobs(native):
        return {}
    top = native.get("top_logprobs")
    return {"logprobs": True} if top is None else {"logprobs": True, "top_logprobs": top}


def _list(holder: Mapping[str, Any], name: str) -> list[object]:
    value = holder.get(name)
    if value is not None and not isinstance(value, list):
        raise refused("a list", param=name, code="invalid_type")
    return cast("list[object]", value or [])


def _object(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = holder.get(name)
    if value is not None and not isinstance(value, dict):
        raise refused("an object", param=name, code="invalid_type")
    return cast("Mapping[str, Any]", value or {})
