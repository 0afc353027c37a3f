"""Chat messages -> input items of the Responses API: a recorded conversation as it can be gone on from. Pure.

The other direction is in ``items``; there and back a conversation is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agl.proxy.dialects.responses.answers import function_calls, reasoning_of, reasoning_part, refusal_part
from agl.proxy.dialects.responses.nodes import object_of, objects_of

Item = dict[str, Any]


def items_from_messages(messages: Sequence[Mapping[str, Any]]) -> list[Item]:
    """Return the items that mean these messages, without ids."""
    return [item for message in messages for item in _items(message)]


def _items(message: Mapping[str, Any]) -> list[Item]:
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        output = _content(content)
        return [{"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": output}]
    if role != "assistant":
        return [{"type": "message", "role": role, "content": _content(content)}]
    items: list[Item] = []
    thoughts = reasoning_of(message)
    if thoughts:
        items.append({"type": "reasoning", "summary": [], "content": [reasoning_part(thoughts)]})
    parts: list[Item] = [] if content is None else [{"type": "output_text", "text": content}]
    if message.get("refusal"):
        parts.append(refusal_part(message["refusal"]))
    if parts:
        items.append({"type": "message", "role": "assistant", "content": parts})
    for call in function_calls(message):
        named = {name: call["function"].get(name) or "" for name in ("name", "arguments")}
        items.append({"type": "function_call", "call_id": call.get("id"), **named})
    return items


def _content(content: object) -> str | list[Item]:
    return content if isinstance(content, str) else [_part(part) for part in objects_of(content)]


def _part(part: Mapping[str, Any]) -> Item:
    kind = part.get("type")
    if kind == "text":
        return {"type": "input_text", "text": part.get("text")}
    if kind == "image_url":
        image = object_of(part.get("image_url"))
        detail = {"detail": image["detail"]} if "detail" in image else {}
        return {"type": "input_image", "image_url": image.get("url"), **detail}
    if kind == "file":
        return {"type": "input_file", **object_of(part.get("file"))}
    return dict(part)
