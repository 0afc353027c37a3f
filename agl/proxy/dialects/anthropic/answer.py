"""The canonical answer -> Anthropic's Message.

A message has its thinking (when the client asked for some), then its text, then its tool uses. A tool's arguments are
put into the answer as the very text that was sampled; text that is no JSON object becomes ``{"INVALID_JSON": text}``,
the wrapping that Anthropic's documentation gives for it. An answer without anything is one empty text block, so that
``message.content[0].text`` is what the model said: nothing.

Source: https://docs.claude.com/en/api/messages
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

from agl.proxy.dialects.anthropic.content import arguments_text
from agl.proxy.dialects.anthropic.errors import Json, object_or_empty, objects_in
from agl.proxy.dialects.anthropic.request import wants_thinking, wants_thinking_text
from agl.proxy.dialects.base import ClientRequest

INVALID = "INVALID_JSON"
BESIDE = "anthropic"
"""The key of a canonical message under which stands what the canonical form cannot say: ``content``, ``stop_reason``
and ``stop_details`` as the provider gave them."""
_STOP_REASONS = {
    "length": "max_tokens",
    "content_filter": "refusal",
    "tool_calls": "tool_use",
    "stop": "end_turn",
}


def message(request: ClientRequest, answer: Mapping[str, Any]) -> Json:
    """Return the Message object of an answer; tool inputs in it are fragments of JSON."""
    choice = first_choice(answer)
    said = object_or_empty(choice.get("message"))
    return {
        "id": message_id(answer.get("id")),
        "type": "message",
        "role": "assistant",
        "model": model_of(request, answer),
        "content": content_blocks(request, said, message_id(answer.get("id"))),
        **stop_fields(request, choice),
        "usage": usage(answer),
    }


def first_choice(answer: Mapping[str, Any]) -> Json:
    """Return the choice with the lowest index; a Message holds one."""
    return min(objects_in(answer["choices"]), key=lambda choice: integer(choice.get("index")) or 0)


def model_of(request: ClientRequest, told: Mapping[str, Any]) -> str:
    """Return the model that answered, as an answer or a chunk tells it; else the one that was asked."""
    model = told.get("model")
    return model if isinstance(model, str) and model else request.chat["model"]


def message_id(answer_id: object) -> str:
    """Return the id of the Message of an answer with this id."""
    if not isinstance(answer_id, str) or not answer_id:
        return "msg_0"
    return answer_id if answer_id.startswith("msg_") else "msg_" + answer_id.removeprefix("chatcmpl-")


def content_blocks(request: ClientRequest, said: Mapping[str, Any], own_id: str) -> list[Json]:
    """Return the content blocks of a canonical message."""
    native = object_or_empty(said.get(BESIDE)).get("content")
    if isinstance(native, list):
        return cast("list[Json]", native)
    blocks: list[Json] = []
    thoughts = reasoning_of(said)
    if thoughts and wants_thinking(request.native):
        shown = thoughts if wants_thinking_text(request.native) else ""
        blocks.append({"type": "thinking", "thinking": shown, "signature": ""})
    text = text_of(said)
    if text:
        blocks.append({"type": "text", "text": text})
    for index, call in enumerate(objects_in(said.get("tool_calls"))):
        function = object_or_empty(call.get("function"))
        given = orjson.Fragment(input_text(function.get("arguments")))
        name = str(function.get("name") or "")
        blocks.append({"type": "tool_use", "id": tool_id(call, own_id, index), "name": name, "input": given})
    return blocks or [{"type": "text", "text": ""}]


def reasoning_of(said: Mapping[str, Any]) -> str:
    """Return the thoughts of a message or delta; vLLM has renamed the field from ``reasoning_content``."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(said.get(name), str) and said[name]:
            return said[name]
    return ""


def text_of(said: Mapping[str, Any]) -> str:
    """Return the text of a message or delta: what it says, or why it refuses to."""
    return "".join(said[name] for name in ("content", "refusal") if isinstance(said.get(name), str))


def tool_id(call: Mapping[str, Any], own_id: str, index: int) -> str:
    """Return the id of a tool call, one made from the message's when the server gave none."""
    given = call.get("id")
    return given if isinstance(given, str) and given else f"toolu_{own_id.removeprefix('msg_')}_{index}"


def input_text(arguments: object) -> str:
    """Return a tool's input as the text of a JSON object; the sampled text itself wherever it is one."""
    if isinstance(arguments, dict):
        return arguments_text(cast("Json", arguments))
    text = arguments if isinstance(arguments, str) else ""
    if not text.strip():
        return "{}"
    try:
        valid = isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        valid = False
    return text if valid else arguments_text({INVALID: text})


def stop_fields(request: ClientRequest, choice: Mapping[str, Any]) -> Json:
    """Return ``stop_reason`` and ``stop_sequence`` (``stop_details`` where the provider gave them) of a choice."""
    said = object_or_empty(choice.get("message"))
    native = object_or_empty(said.get(BESIDE))
    matched = choice.get("stop_reason")  # vLLM: the stop text that was met, or a token's id
    if not isinstance(matched, str) or matched not in request.chat.get("stop", ()):
        matched = None
    reason = str(choice.get("finish_reason") or "stop")
    if matched is not None:
        stop = "stop_sequence"
    elif reason == "stop" and said.get(
        "tool_calls"
    ):  # what some servers say of a call that the request forced
        stop = "tool_use"
    elif reason == "stop" and said.get("refusal"):
        stop = "refusal"
    else:
        stop = _STOP_REASONS.get(reason, "end_turn")
    fields: Json = {"stop_reason": native.get("stop_reason") or stop, "stop_sequence": matched}
    if native.get("stop_details"):
        fields["stop_details"] = native["stop_details"]
    return fields


def usage(answer: Mapping[str, Any]) -> Json:
    """Return Anthropic's usage of an answer: its input tokens do not count those of the cache, OpenAI's do."""
    told = object_or_empty(answer.get("usage"))
    details = object_or_empty(told.get("prompt_tokens_details"))
    read, written = _count(details, "cached_tokens") or 0, _count(details, "cache_creation_tokens") or 0
    prompt = _count(told, "prompt_tokens")
    if prompt is None:
        prompt = _length(answer.get("prompt_token_ids"))
    output = _count(told, "completion_tokens")
    if output is None:
        output = sum(_length(choice.get("token_ids")) for choice in objects_in(answer.get("choices")))
    counted: Json = {
        "input_tokens": max(prompt - read - written, 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": output,
    }
    thoughts = _count(object_or_empty(told.get("completion_tokens_details")), "reasoning_tokens")
    if thoughts is not None:
        counted["output_tokens_details"] = {"thinking_tokens": thoughts}
    return counted


def _count(holder: Mapping[str, Any], name: str) -> int | None:
    return integer(holder.get(name))


def integer(value: object) -> int | None:
    """Return a whole number, None for anything else."""
    return value if isinstance(value, int) else None


def _length(value: object) -> int:
    return len(cast("list[object]", value)) if isinstance(value, list) else 0
