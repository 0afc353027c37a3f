"""Read a chat completion request: what it asks for, checked, and the exact token ids of its prompt.

A parameter that would change the answer and is not supported is refused by name, never ignored. Unlike OpenAI:
``max_tokens`` is cut to what fits behind the prompt (the answer then ends with ``length``); vLLM's ``top_k``,
``chat_template_kwargs`` and ``return_token_ids`` are understood; temperature 0 is the most likely token; a tool's
``strict`` is a wish, as sampling is never constrained. ``prompt`` (text, or token ids) in place of ``messages`` is
what OpenAI's legacy completions ask for: no chat template then.

Source: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agl.errors import InferenceError

_HARMLESS = frozenset(
    {
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "return_token_ids",
        "safety_identifier",
    }
    | {"service_tier", "store", "stream_options", "user"}
)
"""They change bookkeeping, billing or speed, not the answer."""

_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "add_generation_prompt": (True,),
    "audio": (),
    "best_of": (1,),
    "continue_final_message": (False,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "logit_bias": ({},),
    "min_p": (0,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "presence_penalty": (0,),
    "reasoning_effort": ("none",),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "stream": (False,),
    "suffix": (),
    "tool_choice": ("auto", "none"),
    "top_logprobs": (0,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Parameters of which only these values are supported, besides null: they mean what happens anyway."""

_READ = frozenset(
    {"chat_template_kwargs", "logprobs", "max_completion_tokens", "max_tokens", "messages", "model", "n"}
    | {"parallel_tool_calls", "prompt", "seed", "stop", "temperature", "tools", "top_k", "top_p"}
)

_OF_MESSAGES = ("chat_template_kwargs", "messages", "tools")
"""What a request with a prompt cannot have."""

MAX_CHOICES = 128
"""OpenAI's limit on n."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A chat completion request that can be answered."""

    messages: Sequence[Mapping[str, Any]]
    """As the chat template takes them: content is text, a tool call's arguments are an object; none with a prompt."""
    prompt: str | Sequence[int] | None
    """What to continue, as text or token ids, without chat template."""
    tools: Sequence[Mapping[str, Any]] | None
    """None when there are none or the request forbids them."""
    template_options: Mapping[str, Any]
    max_tokens: int | None
    """None is as much as fits."""
    temperature: float
    top_p: float
    top_k: int
    """0 is off."""
    stop: tuple[str, ...]
    seed: int | None
    num_choices: int
    logprobs: bool
    parallel_tool_calls: bool


def parse_request(request: Mapping[str, Any], *, model: str) -> ChatRequest:
    """Check a request for a chat completion and return what it asks for.

    Args:
        request: the body, OpenAI's shape.
        model: the name that the request must use if it uses one.

    Raises:
        InferenceError: with status 400 (404 for the model), naming the parameter.
    """
    _refuse_unsupported(request)
    if request.get("model") not in (None, model):
        raise refusal(
            f"the model `{request['model']}` does not exist; this engine serves `{model}`",
            parameter="model",
            code="model_not_found",
            status=404,
        )
    limits = [name for name in ("max_completion_tokens", "max_tokens") if request.get(name) is not None]
    prompt = _prompt(request)
    tools = _tools(request)
    return ChatRequest(
        messages=_messages(request.get("messages")) if prompt is None else (),
        prompt=prompt,
        tools=tools if tools and request.get("tool_choice") != "none" else None,
        template_options=_typed(request, "chat_template_kwargs", Mapping, {}),
        max_tokens=min(_integer(request, name, 0, least=1) for name in limits) if limits else None,
        temperature=_number(request, "temperature", 1.0, low=0.0, high=2.0),
        top_p=_number(request, "top_p", 1.0, low=0.0, high=1.0),
        top_k=max(_integer(request, "top_k", 0, least=-1), 0),
        stop=_stop(request.get("stop")),
        seed=None if request.get("seed") is None else _integer(request, "seed", 0, least=None),
        num_choices=_integer(request, "n", 1, least=1, most=MAX_CHOICES),
        logprobs=_typed(request, "logprobs", bool, False),  # noqa: FBT003 - the default of a JSON value
        parallel_tool_calls=_typed(request, "parallel_tool_calls", bool, True),  # noqa: FBT003
    )


def prompt_characters(request: ChatRequest) -> int:
    """Return how much text has to be encoded."""
    if request.prompt is None:
        return sum(len(message["content"]) for message in request.messages)
    return len(request.prompt) if isinstance(request.prompt, str) else 0


def encode_prompt(request: ChatRequest, tokenizer: Any) -> list[int]:
    """Return the exact ids that the engine is to see: the chat template rendered, then encoded, once.

    A prompt in text is encoded as the tokenizer encodes texts, with the token that begins them if it has one.

    Raises:
        InferenceError: with status 400 when the template refuses the messages or renders nothing, or an id of the
            prompt is not one of the tokenizer's.
    """
    if request.prompt is None:
        return _encoded_messages(request, tokenizer)
    ids = tokenizer.encode(request.prompt) if isinstance(request.prompt, str) else list(request.prompt)
    if not ids:
        raise refusal("`prompt` is empty", parameter="prompt")
    unknown = next((token_id for token_id in ids if not 0 <= token_id < len(tokenizer)), None)
    if unknown is not None:
        raise refusal(f"`prompt`: this model has no token {unknown}", parameter="prompt")
    return ids


def _encoded_messages(request: ChatRequest, tokenizer: Any) -> list[int]:
    from jinja2 import TemplateError

    try:
        text = tokenizer.apply_chat_template(
            list(request.messages),
            tools=request.tools,
            add_generation_prompt=True,
            tokenize=False,
            **request.template_options,
        )
    except (TemplateError, TypeError, ValueError, KeyError) as error:
        raise refusal(
            f"the chat template cannot render these messages: {error}", parameter="messages"
        ) from error
    ids = cast("list[int]", tokenizer.encode(text, add_special_tokens=False))
    if not ids:
        raise refusal("the chat template renders these messages to nothing", parameter="messages")
    return ids


def answer_tokens(request: ChatRequest, prompt_tokens: int, max_length: int) -> int:
    """Return how many tokens an answer may have: what was asked for, or what fits behind the prompt if that is less.

    Raises:
        InferenceError: with status 400 and code ``context_length_exceeded`` when nothing fits.
    """
    room = max_length - prompt_tokens
    if room < 1:
        raise refusal(
            f"this model's maximum context length is {max_length} tokens, but the messages have {prompt_tokens}",
            parameter="messages",
            code="context_length_exceeded",
        )
    return room if request.max_tokens is None else min(request.max_tokens, room)


def refusal(
    message: str, *, parameter: str | None = None, code: str | None = None, status: int = 400
) -> InferenceError:
    """Return the error of a request that is wrong, with OpenAI's error body."""
    body = {"error": {"message": message, "type": "invalid_request_error", "param": parameter, "code": code}}
    return InferenceError(message, status=status, body=body)


def _refuse_unsupported(request: Mapping[str, Any]) -> None:
    for name, value in request.items():
        if value is None or name in _READ or name in _HARMLESS:
            continue
        if name not in _NEUTRAL:
            raise refusal(
                f"`{name}` is not supported by this engine", parameter=name, code="unsupported_parameter"
            )
        if value not in _NEUTRAL[name]:
            raise refusal(
                f"`{name}`={json.dumps(value, default=str)} is not supported by this engine; leave it out",
                parameter=name,
                code="unsupported_value",
            )


def _prompt(request: Mapping[str, Any]) -> str | Sequence[int] | None:
    prompt: object = request.get("prompt")
    if prompt is None:
        return None
    for name in _OF_MESSAGES:
        if request.get(name):
            raise refusal(f"`{name}` and `prompt` exclude each other", parameter=name)
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and all(type(token_id) is int for token_id in cast("list[object]", prompt)):
        return cast("list[int]", prompt)
    raise refusal("`prompt` must be one text or one list of token ids", parameter="prompt")


def _tools(request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    """Return the tools, if there are any and they may be called."""
    tools = cast("list[object]", _typed(request, "tools", list, []))
    for index, tool in enumerate(tools):
        function = cast("Mapping[str, object]", tool).get("function") if isinstance(tool, Mapping) else None
        named = isinstance(function, Mapping) and isinstance(
            cast("Mapping[str, object]", function).get("name"), str
        )
        if not named:
            where = f"tools[{index}]"
            raise refusal(
                f"`{where}` must be a function with a name; this engine knows no other", parameter=where
            )
    if not tools or request.get("tool_choice") == "none":
        return None
    return cast("Sequence[Mapping[str, Any]]", tools)


def _messages(messages: object) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or not messages:
        raise refusal("`messages` must be a list of at least one message", parameter="messages")
    return [
        _message(message, f"messages[{index}]")
        for index, message in enumerate(cast("list[object]", messages))
    ]


def _message(message: object, where: str) -> dict[str, Any]:
    """Return the message as chat templates take it."""
    if not isinstance(message, Mapping) or not isinstance(
        cast("Mapping[str, object]", message).get("role"), str
    ):
        raise refusal(f"`{where}` must be an object with a role", parameter=where)
    plain = dict(cast("Mapping[str, Any]", message))
    if plain["role"] == "developer":  # OpenAI's newer name of the same thing; templates know the older one
        plain["role"] = "system"
    plain["content"] = _text(plain.get("content"), f"{where}.content")
    if plain.get("tool_calls"):
        plain["tool_calls"] = [_tool_call(call, f"{where}.tool_calls") for call in plain["tool_calls"]]
    elif "tool_calls" in plain:
        del plain["tool_calls"]
    return plain


def _text(content: object, where: str) -> str:
    """Return a message's content as text, its parts joined."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise refusal(f"`{where}` must be text or a list of text parts", parameter=where)
    parts = cast("list[object]", content)
    texts = [
        cast("Mapping[str, object]", part).get("text") if isinstance(part, Mapping) else None
        for part in parts
    ]
    for part, text in zip(parts, texts, strict=True):
        if not isinstance(text, str):
            kind = cast("Mapping[str, object]", part).get("type") if isinstance(part, Mapping) else part
            raise refusal(f"`{where}`: this engine reads text parts only, not {kind!r}", parameter=where)
    return "".join(cast("list[str]", texts))


def _tool_call(call: object, where: str) -> dict[str, Any]:
    """Return the tool call with its arguments as an object, from which templates write them as the model did."""
    if not isinstance(call, Mapping) or not isinstance(
        cast("Mapping[str, object]", call).get("function"), Mapping
    ):
        raise refusal(f"`{where}` must be objects with a function", parameter=where)
    plain = dict(cast("Mapping[str, Any]", call))
    function = dict(plain["function"])
    if isinstance(function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(function["arguments"])
        except ValueError as error:
            raise refusal(f"`{where}`: the arguments are not JSON: {error}", parameter=where) from error
    plain["function"] = function
    return plain


def _stop(stop: object) -> tuple[str, ...]:
    if stop is None:
        return ()
    strings = cast("list[object]", stop) if isinstance(stop, list) else [stop]
    if not all(isinstance(string, str) and string for string in strings):
        raise refusal("`stop` must be a string or a list of strings, none of them empty", parameter="stop")
    return tuple(cast("list[str]", strings))


def _typed(request: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = request.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise refusal(f"`{name}` must be of JSON type {kind.__name__}", parameter=name)
    return value


def _number(request: Mapping[str, Any], name: str, default: float, *, low: float, high: float) -> float:
    value = request.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise refusal(f"`{name}`={value!r} must be a number from {low:g} to {high:g}", parameter=name)
    return float(value)


def _integer(
    request: Mapping[str, Any], name: str, default: int, *, least: int | None, most: int | None = None
) -> int:
    value = request.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise refusal(f"`{name}`={value!r} must be an integer", parameter=name)
    if (least is not None and value < least) or (most is not None and value > most):
        wanted = f"from {least} to {most}" if most is not None else f"at least {least}"
        raise refusal(f"`{name}`={value} must be {wanted}", parameter=name)
    return value
