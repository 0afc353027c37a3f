"""Chat messages -> Anthropic's system prompt and turns, for chat clients of a server that speaks Anthropic's alone.

System and developer messages go to the front, wherever they stood, as in Anthropic's own endpoint for OpenAI's clients:
turns hold none. Tool messages become the results that begin the user's next turn. What a client sends back under
``anthropic`` in an assistant's message (signed thinking, ...) is the turn as Anthropic said it; reasoning alone has no
signature and is left out. Empty texts are left out, because Anthropic refuses them.

Source: https://docs.claude.com/en/api/openai-sdk
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

from agl.proxy.dialects.anthropic.answer import BESIDE, input_text
from agl.proxy.dialects.anthropic.errors import Json, object_or_empty, objects_in, refused, unsupported

_NOT_HERE = "Anthropic's models cannot be given this"


def system_and_turns(messages: object) -> tuple[list[Json], list[Json]]:
    """Return the blocks of the system prompt, and the turns.

    Raises:
        CallRefusedError: 400, which field has the wrong shape, or cannot be said to Anthropic's models.
    """
    system: list[Json] = []
    turns: list[Json] = []
    for index, message in enumerate(objects_in(messages)):
        where = f"messages.{index}"
        role, content = message.get("role"), message.get("content")
        if role in ("system", "developer"):
            system += _blocks(content, f"{where}.content")
        elif role == "user":
            _add_user_blocks(turns, _blocks(content, f"{where}.content"))
        elif role == "tool":
            _add_user_blocks(turns, [_tool_result(message, where)])
        elif role == "assistant":
            said = _assistant_blocks(message, where)
            if said:
                turns.append({"role": "assistant", "content": said})
        else:
            raise refused(
                "`system`, `developer`, `user`, `assistant` or `tool`; Anthropic knows no other",
                f"{where}.role",
            )
    return system, turns


def _add_user_blocks(turns: list[Json], blocks: list[Json]) -> None:
    """Add a turn of the user's; results of tools and what follows them are one."""
    last: Json = turns[-1] if turns else {"role": None}
    if last["role"] == "user" and last["content"][-1]["type"] == "tool_result":
        last["content"] += blocks
    elif blocks:
        turns.append({"role": "user", "content": blocks})


def _tool_result(message: Mapping[str, Any], where: str) -> Json:
    if not isinstance(message.get("tool_call_id"), str):
        raise refused("the id of the tool call, as text", f"{where}.tool_call_id")
    result: Json = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
    blocks = _blocks(message.get("content"), f"{where}.content")
    return result | {"content": blocks} if blocks else result


def _assistant_blocks(message: Mapping[str, Any], where: str) -> list[Json]:
    own = object_or_empty(message.get(BESIDE)).get("content")
    if isinstance(own, list):
        return objects_in(cast("object", own))
    blocks = _blocks(message.get("content"), f"{where}.content")
    if message.get("refusal"):
        blocks.append({"type": "text", "text": str(message["refusal"])})
    for index, call in enumerate(objects_in(message.get("tool_calls"))):
        blocks.append(_tool_use(call, f"{where}.tool_calls.{index}"))
    return blocks


def _tool_use(call: Mapping[str, Any], where: str) -> Json:
    function = object_or_empty(call.get("function"))
    if not isinstance(function.get("name"), str):
        raise unsupported(f"{_NOT_HERE}: only calls of functions, with a name", where)
    given: object = orjson.loads(input_text(function.get("arguments")))
    return {"type": "tool_use", "id": str(call.get("id")), "name": function["name"], "input": given}


def _blocks(content: object, where: str) -> list[Json]:
    """Return the content blocks of a message's content, without empty texts."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        raise refused("text or a list of parts", where)
    parts = enumerate(cast("list[object]", content))
    blocks = [_block(object_or_empty(part), f"{where}.{index}") for index, part in parts]
    return [block for block in blocks if block.get("text") != ""]


def _block(part: Mapping[str, Any], where: str) -> Json:
    kind = part.get("type")
    if kind in ("text", "refusal"):
        if not isinstance(part.get(kind), str):
            raise refused("text", f"{where}.{kind}")
        return {"type": "text", "text": part[kind]}
    if kind == "image_url":
        url = object_or_empty(part.get("image_url")).get("url")
        return {"type": "image", "source": _source(url, f"{where}.image_url.url")}
    file = object_or_empty(part.get("file"))
    if kind == "file" and file.get("file_data") is not None:
        document: Json = {"type": "document", "source": _source(file["file_data"], f"{where}.file.file_data")}
        return document | ({"title": file["filename"]} if file.get("filename") else {})
    raise unsupported(f"{_NOT_HERE}: a part of type {kind!r}", where)


def _source(url: object, where: str) -> Json:
    """Return where an image or a document comes from: a data URL's own bytes, or an address."""
    text = url if isinstance(url, str) else ""
    media_type, found, data = text.removeprefix("data:").partition(";base64,")
    if text.startswith("data:") and found:
        return {"type": "base64", "media_type": media_type, "data": data}
    if text.startswith(("https://", "http://")):
        return {"type": "url", "url": text}
    raise refused("an http(s) URL, or a data URL in base64", where)
