"""Recorded calls -> conversations of OpenAI's fine-tuning format, and what of that format a conversation breaks.

Calls whose messages continue each other are one conversation. Of its answers those are learned that the agent was given
by the model here; others, such as examples in its prompt, have ``weight`` 0.

Source: https://platform.openai.com/docs/api-reference/fine-tuning/chat-input. Not of the format, and left away: fields
of messages that it does not know, such as reasoning. ``developer`` becomes ``system``; text in parts becomes text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from agl.adapters.conversations import Message, conversations_from_spans
from agl.types import Span

ROLES = ("system", "user", "assistant", "tool")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(slots=True, kw_only=True)
class Chat:
    """One conversation.

    Args:
        messages: of OpenAI's shape.
        tools: that the model was offered.
        answers: the messages that are learned, by index.
    """

    messages: list[Message]
    tools: list[dict[str, Any]] | None
    answers: set[int] = field(default_factory=set[int])

    def as_json(self) -> dict[str, Any]:
        """Return the line of a file."""
        messages = [
            message if message["role"] != "assistant" or place in self.answers else {**message, "weight": 0}
            for place, message in enumerate(self.messages)
        ]
        return {"messages": messages, **({"tools": self.tools} if self.tools else {})}


def chats_from_spans(spans: Sequence[Span], *, agents: Sequence[str] | None = None) -> list[Chat]:
    """Return the conversations of one attempt, in the order of their first calls."""
    chats: list[Chat] = []
    for call in conversations_from_spans(spans, name="", agents=agents):
        messages = [_message(one) for one in call.messages]
        tools = [dict(tool) for tool in call.tools or ()] or None
        open_one = next((chat for chat in reversed(chats) if _continues(messages, tools, chat)), None)
        if open_one is None:
            open_one = Chat(messages=messages, tools=tools)
            chats.append(open_one)
        open_one.messages = messages
        open_one.answers.add(len(messages) - 1)
    return chats


def _continues(messages: Sequence[Message], tools: list[dict[str, Any]] | None, chat: Chat) -> bool:
    return tools == chat.tools and list(messages[: len(chat.messages)]) == chat.messages


def _message(message: Mapping[str, Any]) -> Message:
    role = "system" if message.get("role") == "developer" else message.get("role")
    calls = [_tool_call(call) for call in message.get("tool_calls") or ()]
    content = _text(message.get("content"))
    if role == "assistant":
        content = (content or None) if calls else (content or "")
    kept: Message = {"role": role, "content": content}
    for name in ("name", "tool_call_id"):
        if message.get(name) is not None:
            kept[name] = message[name]
    return kept | ({"tool_calls": calls} if calls else {})


def _text(content: Any) -> Any:
    """Text in parts as one text; content with other parts as it is."""
    if not isinstance(content, list):
        return content
    parts = cast("list[Any]", content)
    texts = [cast("Message", part).get("text") for part in parts if isinstance(part, Mapping)]
    if len(texts) == len(parts) and all(isinstance(text, str) for text in texts):
        return "".join(cast("list[str]", texts))
    return parts


def _tool_call(call: Any) -> Any:
    if not isinstance(call, Mapping):
        return call
    known = cast("Message", call)
    function = known.get("function")
    named = cast("Message", function) if isinstance(function, Mapping) else {}
    arguments = named.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {
        "id": known.get("id"),
        "type": "function",
        "function": {"name": named.get("name"), "arguments": text},
    }


def problem_of(chat: Chat) -> str | None:
    """Return which rule of the format the conversation breaks, None where it breaks none.

    ``unknown_role``; ``bad_content`` (neither text nor parts, or an empty answer); ``bad_tool_calls`` (without id,
    name or arguments in text); ``unanswered_tool_calls`` (other than at the end); ``stray_tool_message`` (answers no
    call before it); ``bad_tools``; ``undeclared_tool`` (a call of a tool that was not offered).
    """
    names = _tool_names(chat.tools)
    if names is None:
        return "bad_tools"
    waiting: set[str] = set()
    for message in chat.messages:
        problem = _shape_problem(message)
        if problem is not None:
            return problem
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                return "stray_tool_message"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return "unanswered_tool_calls"
        calls = cast("list[Message]", message.get("tool_calls") or [])
        if any(call["function"]["name"] not in names for call in calls):
            return "undeclared_tool"
        waiting = {call["id"] for call in calls}
        if len(waiting) < len(calls):
            return "bad_tool_calls"
    return None


def _tool_names(tools: Sequence[Mapping[str, Any]] | None) -> set[str] | None:
    """The names of the tools, None where one of them is none of the format."""
    names: set[str] = set()
    for tool in tools or ():
        function = tool.get("function")
        name = cast("Message", function).get("name") if isinstance(function, Mapping) else None
        if tool.get("type") != "function" or not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            return None
        names.add(name)
    return names


def _shape_problem(message: Message) -> str | None:
    role, content = message["role"], message["content"]
    calls = cast("list[Any]", message.get("tool_calls") or [])
    if role not in ROLES:
        return "unknown_role"
    if not all(_is_tool_call(call) for call in calls):
        return "bad_tool_calls"
    if role == "assistant":
        well_said = isinstance(content, str) and bool(content)
        return None if calls or well_said else "bad_content"
    if isinstance(content, list):
        return None if role == "user" else "bad_content"
    return None if isinstance(content, str) else "bad_content"


def _is_tool_call(call: Any) -> bool:
    if not isinstance(call, Mapping):
        return False
    known = cast("Message", call)
    function = known["function"]
    texts = (known["id"], function["name"], function["arguments"])
    return all(isinstance(text, str) for text in texts) and bool(known["id"]) and bool(function["name"])
