"""Anthropic's messages -> chat messages.

Text is moved, never joined: one text block is a string (Anthropic defines the two as equal), several are a list of
text parts in their order. Tool results become messages of role ``tool`` before the rest of their turn, since a chat's
tool messages follow the call. Images stay where they are, also in tool results. ``cache_control`` and citation
settings are left out: they change bookkeeping. ``is_error`` has no place in a chat: a result's text stands as it is,
and a failed tool that says nothing says ``error``. Thinking is ``reasoning_content``; redacted thinking is encrypted
and left out. What only Anthropic's servers understand stays in the messages for the record and is named in
``native_only``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from agl.proxy.dialects.anthropic.errors import Json, object_or_empty, refused, unsupported
from agl.proxy.refusal import CallRefusedError

NativeOnly = list[CallRefusedError]
"""What a chat upstream cannot be asked, in the order in which it was found."""


def chat_messages(system: object, messages: object, native_only: NativeOnly) -> list[Json]:
    """Return the chat messages of a request's ``system`` and ``messages``.

    Raises:
        CallRefusedError: 400, which field has the wrong shape.
    """
    if not isinstance(messages, list) or not messages:
        raise refused("a list with at least one message", "messages")
    chat: list[Json] = []
    if system not in (None, "", []):
        chat.append({"role": "system", "content": _content(_all_parts(system, "system", native_only))})
    for index, message in enumerate(cast("list[object]", messages)):
        chat.extend(_turn(message, f"messages.{index}", native_only))
    return chat


def arguments_text(value: object) -> str:
    """Return a tool's input as JSON text, spaced as models and chat templates write it."""
    return json.dumps(value, ensure_ascii=False)


def _turn(message: object, where: str, native_only: NativeOnly) -> list[Json]:
    if not isinstance(message, Mapping):
        raise refused("an object with role and content", where)
    turn = cast("Mapping[str, Any]", message)
    role, content = turn.get("role"), turn.get("content")
    place = f"{where}.content"
    if role == "user":
        return _user_turn(content, place, native_only)
    if role == "assistant":
        return [_assistant_message(content, place, native_only)]
    if role == "system":
        return [{"role": "system", "content": _content(_all_parts(content, place, native_only))}]
    raise refused("`user`, `assistant` or `system`", f"{where}.role")


def _user_turn(content: object, where: str, native_only: NativeOnly) -> list[Json]:
    results: list[Json] = []
    parts: list[Json] = []
    for block, place in _blocks(content, where):
        if block["type"] == "tool_result":
            results.append(_tool_message(block, place, native_only))
        else:
            parts.extend(_parts(block, place, native_only))
    if parts or not results:
        results.append({"role": "user", "content": _content(parts)})
    return results


def _tool_message(block: Mapping[str, Any], where: str, native_only: NativeOnly) -> Json:
    inner = block.get("content")
    content = "" if inner is None else _content(_all_parts(inner, f"{where}.content", native_only))
    if block.get("is_error") is True and not content:
        content = "error"
    return {"role": "tool", "tool_call_id": _string(block, "tool_use_id", where), "content": content}


def _assistant_message(content: object, where: str, native_only: NativeOnly) -> Json:
    parts: list[Json] = []
    thoughts: list[str] = []
    calls: list[Json] = []
    for block, place in _blocks(content, where):
        kind = block["type"]
        if kind == "thinking":
            thoughts.append(_string(block, "thinking", place))
        elif kind == "tool_use":
            calls.append(_tool_call(block, place))
        elif kind != "redacted_thinking":
            parts.extend(_parts(block, place, native_only))
    message: Json = {"role": "assistant", "content": _content(parts) if parts or not calls else None}
    if any(thoughts):
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _tool_call(block: Mapping[str, Any], where: str) -> Json:
    given = block.get("input")
    if not isinstance(given, dict):
        raise refused("an object", f"{where}.input")
    try:
        arguments = arguments_text(cast("Json", given))
    except RecursionError as error:
        raise refused("this is nested too deeply", f"{where}.input") from error
    function = {"name": _string(block, "name", where), "arguments": arguments}
    return {"id": _string(block, "id", where), "type": "function", "function": function}


def _all_parts(content: object, where: str, native_only: NativeOnly) -> list[Json]:
    return [part for block, place in _blocks(content, where) for part in _parts(block, place, native_only)]


def _blocks(content: object, where: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield each block with its place; text alone is one text block."""
    if isinstance(content, str):
        yield {"type": "text", "text": content}, where
        return
    if not isinstance(content, list):
        raise refused("text or a list of content blocks", where)
    for index, block in enumerate(cast("list[object]", content)):
        place = f"{where}.{index}"
        kind = cast("Mapping[str, object]", block).get("type") if isinstance(block, Mapping) else None
        if not isinstance(kind, str):
            raise refused("a content block, an object with `type`", place)
        yield cast("Mapping[str, Any]", block), place


def _parts(block: Mapping[str, Any], where: str, native_only: NativeOnly) -> list[Json]:
    """Return the content parts of a block that is no tool's and no thought."""
    parts: list[Json] | None = None
    if block["type"] == "document":
        parts = _document_parts(block, where, native_only)
    elif block["type"] == "search_result":
        heading = [_text_part(_string(block, name, where)) for name in ("title", "source")]
        parts = heading + _inner_parts(block.get("content"), f"{where}.content", native_only)
    return _plain_parts(block, where, native_only) if parts is None else parts


def _inner_parts(content: object, where: str, native_only: NativeOnly) -> list[Json]:
    """The parts within a document or a search result, which hold no further ones."""
    return [
        part for block, place in _blocks(content, where) for part in _plain_parts(block, place, native_only)
    ]


def _plain_parts(block: Mapping[str, Any], where: str, native_only: NativeOnly) -> list[Json]:
    kind = block["type"]
    if kind == "text":
        return [_text_part(_string(block, "text", where))]
    parts = _image_parts(_object(block, "source", where), where) if kind == "image" else None
    if parts is not None:
        return parts
    form = object_or_empty(block.get("source")).get("type")
    form = f" from {form!r}" if form else ""
    message = f"content blocks of type {kind!r}{form} are understood by Anthropic's own servers only"
    native_only.append(unsupported(message, where))
    return [dict(block)]


def _image_parts(source: Mapping[str, Any], where: str) -> list[Json] | None:
    if source.get("type") == "base64":
        place = f"{where}.source"
        url = f"data:{_string(source, 'media_type', place)};base64,{_string(source, 'data', place)}"
    elif source.get("type") == "url":
        url = _string(source, "url", f"{where}.source")
    else:
        return None
    return [{"type": "image_url", "image_url": {"url": url}}]


def _document_parts(block: Mapping[str, Any], where: str, native_only: NativeOnly) -> list[Json] | None:
    """Return a text document's title, context and text, a part each; None for another kind of document."""
    source = _object(block, "source", where)
    place = f"{where}.source"
    if source.get("type") == "text":
        body = [_text_part(_string(source, "data", place))]
    elif source.get("type") == "content":
        body = _inner_parts(source.get("content"), f"{place}.content", native_only)
    else:
        return None
    return [
        _text_part(block[name]) for name in ("title", "context") if isinstance(block.get(name), str)
    ] + body


def _content(parts: Iterable[Json]) -> str | list[Json]:
    listed = list(parts)
    if not listed:
        return ""
    if len(listed) == 1 and listed[0]["type"] == "text":
        return cast("str", listed[0]["text"])
    return listed


def _text_part(text: str) -> Json:
    return {"type": "text", "text": text}


def _string(block: Mapping[str, Any], name: str, where: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise refused("text", f"{where}.{name}")
    return value


def _object(block: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    value = block.get(name)
    if not isinstance(value, Mapping):
        raise refused("an object", f"{where}.{name}")
    return cast("Mapping[str, Any]", value)
