"""Input items of the Responses API -> chat messages. Pure.

Responses keeps what a model said as separate items (reasoning, message, function calls); a chat has one assistant
message for all of it. The items of one answer therefore join again into the message that the model wrote.

Source: https://platform.openai.com/docs/api-reference/responses/create (``input``)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any, cast

from agl.proxy.dialects.responses.nodes import object_of, objects_of, text_of
from agl.proxy.refusal import CallRefusedError

_ROLES = ("user", "system", "developer", "assistant")
_TEXT_PARTS = ("input_text", "output_text", "text")


def messages_from_items(
    instructions: object, items: Sequence[object], *, lenient: bool = False
) -> list[dict[str, Any]]:
    """Return the chat messages that instructions and input items mean, the instructions first.

    Args:
        instructions: text, or nothing.
        items: with references replaced by the items, for this module knows no others.
        lenient: leave out what a chat cannot hold, in place of refusing it.

    Raises:
        CallRefusedError: 400, naming the item.
    """
    messages: list[dict[str, Any]] = []
    if isinstance(instructions, str) and instructions:
        messages.append({"role": "system", "content": instructions})
    for index, item in enumerate(items):
        with suppress(CallRefusedError) if lenient else nullcontext():
            _append(messages, item, f"input[{index}]")
    return messages


def reasoning_text(item: Mapping[str, Any]) -> str:
    """Return the reasoning that an item spells out; a summary of it or an encrypted form is not it."""
    return "".join(text_of(part.get("text")) for part in objects_of(item.get("content")))


def referenced_id(item: object) -> object:
    """Return the id in a reference to an item, None for any other item."""
    node = object_of(item)
    kind = node.get("type")
    return node.get("id") if kind == "item_reference" or (kind is None and "role" not in node) else None


def unknown_item(item_id: object, where: str) -> CallRefusedError:
    """Return the refusal of a reference."""
    message = f"Item with id '{item_id}' not found among the responses of this attempt; send the item itself"
    return CallRefusedError(message, status=400, code="item_not_found", param=where)


def refused(message: str, *, param: str, code: str = "invalid_value") -> CallRefusedError:
    """Return the refusal of a field; the message begins with its name."""
    return CallRefusedError(f"{param}: {message}", status=400, code=code, param=param)


def _append(messages: list[dict[str, Any]], item: object, where: str) -> None:
    if not isinstance(item, Mapping):
        raise refused("each item is an object", param=where, code="invalid_type")
    item = cast("Mapping[str, Any]", item)
    kind = item.get("type") or ("message" if "role" in item else None)
    if kind == "message":
        _append_message(messages, item, where)
    elif kind == "function_call":
        call = _tool_call(item, where)
        _turn(messages, joins=True).setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        messages.append(_tool_message(item, where))
    elif kind == "reasoning":
        text = reasoning_text(item)
        if text:
            turn = _turn(messages, joins=_is_unfinished(messages))
            turn["reasoning_content"] = turn.get("reasoning_content", "") + text
    elif referenced_id(item) is not None:
        raise unknown_item(referenced_id(item), where)
    else:
        message = f"items of type {kind!r} cannot be put to a model that is reached over chat completions"
        raise refused(message, param=where, code="unsupported_value")


def _append_message(messages: list[dict[str, Any]], item: Mapping[str, Any], where: str) -> None:
    role, content = item.get("role"), _text_or_parts(item, "content", where)
    if role not in _ROLES:
        raise refused(f"one of {', '.join(_ROLES)}", param=f"{where}.role")
    if role != "assistant":
        messages.append({"role": role, "content": _content(content, f"{where}.content")})
        return
    text, refusal = _said(content, f"{where}.content")
    turn = _turn(messages, joins=_is_unfinished(messages))
    if text is not None:
        turn["content"] = (turn["content"] or "") + text
    if refusal is not None:
        turn["refusal"] = turn.get("refusal", "") + refusal


def _turn(messages: list[dict[str, Any]], *, joins: bool) -> dict[str, Any]:
    """Return the assistant's message that the next item belongs to; a new one unless it joins the last."""
    if joins and messages and messages[-1]["role"] == "assistant":
        return messages[-1]
    messages.append({"role": "assistant", "content": None})
    return messages[-1]


def _is_unfinished(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether more items of the same answer can follow: it has said nothing yet, or its calls have no outputs yet."""
    if not messages:
        return False
    last = messages[-1]
    return bool(last.get("tool_calls")) or (last["content"] is None and "refusal" not in last)


def _said(content: str | list[object], where: str) -> tuple[str | None, str | None]:
    """Return the text and the refusal of an assistant's message."""
    if isinstance(content, str):
        return content, None
    texts: list[str] = []
    refusals: list[str] = []
    for index, part in enumerate(content):
        kind, body = _part(part, f"{where}[{index}]")
        if kind == "refusal":
            refusals.append(_text(body, "refusal", f"{where}[{index}]"))
        elif kind in _TEXT_PARTS:
            texts.append(_text(body, "text", f"{where}[{index}]"))
        else:
            raise refused(f"an assistant's part is text, not {kind!r}", param=f"{where}[{index}].type")
    return "".join(texts) if texts or not refusals else None, "".join(refusals) if refusals else None


def _content(content: str | list[object], where: str) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    return [
        _chat_part(*_part(part, f"{where}[{i}]"), where=f"{where}[{i}]") for i, part in enumerate(content)
    ]


def _chat_part(kind: object, part: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    if kind in _TEXT_PARTS:
        return {"type": "text", "text": _text(part, "text", where)}
    if kind == "input_image":
        if not isinstance(part.get("image_url"), str):
            raise refused("send the image as image_url; stored files are out of reach", param=where)
        detail = {"detail": part["detail"]} if part.get("detail") is not None else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    if kind == "input_file":
        known = {
            name: part[name] for name in ("file_data", "file_id", "filename") if part.get(name) is not None
        }
        if "file_data" not in known and "file_id" not in known:
            raise refused("send the file as file_data; chat completions take no file_url", param=where)
        return {"type": "file", "file": known}
    if kind == "input_audio":
        return {"type": "input_audio", "input_audio": part.get("input_audio")}
    raise refused(f"parts of type {kind!r} are not part of an input", param=f"{where}.type")


def _tool_call(item: Mapping[str, Any], where: str) -> dict[str, Any]:
    function = {"name": _text(item, "name", where), "arguments": _text(item, "arguments", where)}
    return {"id": _text(item, "call_id", where), "type": "function", "function": function}


def _tool_message(item: Mapping[str, Any], where: str) -> dict[str, Any]:
    content = _content(_text_or_parts(item, "output", where), f"{where}.output")
    return {"role": "tool", "tool_call_id": _text(item, "call_id", where), "content": content}


def _part(part: object, where: str) -> tuple[object, Mapping[str, Any]]:
    if not isinstance(part, Mapping):
        raise refused("each part is an object", param=where, code="invalid_type")
    part = cast("Mapping[str, Any]", part)
    return part.get("type"), part


def _text_or_parts(item: Mapping[str, Any], name: str, where: str) -> str | list[object]:
    value = item.get(name)
    if not isinstance(value, str | list):
        raise refused("text or a list of parts", param=f"{where}.{name}", code="invalid_type")
    return value if isinstance(value, str) else cast("list[object]", value)


def _text(holder: Mapping[str, Any], name: str, where: str) -> str:
    value = holder.get(name)
    if not isinstance(value, str):
        raise refused("a text", param=f"{where}.{name}", code="invalid_type")
    return value
