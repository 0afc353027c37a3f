"""Conversations as messages, out of files and out of spans: what a chat template can make tokens of.

Files have one JSON object a line, or are one JSON list of such objects: OpenAI's fine-tuning format (``messages`` with
``tools`` and tool calls; an assistant's ``weight`` of 0 leaves that answer out), or ShareGPT's (``conversations`` of
``from`` and ``value``, with ``system`` and ``tools`` beside them).

Sources: https://platform.openai.com/docs/api-reference/fine-tuning/chat-input,
https://llamafactory.readthedocs.io/en/latest/getting_started/data_preparation.html#sharegpt-format
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from agl.adapters.triplets import calls_of_agents
from agl.errors import ConfigError
from agl.types import Span
from agl.types import attributes as key

Message = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Messages of OpenAI's shape.

    Args:
        name: file and line, or the rollout's id.
        messages: the whole conversation.
        tools: that the model was offered.
        answers: which of the messages are learned: the assistant's, by index.
    """

    name: str
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] | None
    answers: Sequence[int]


def conversations_from_spans(
    spans: Sequence[Span], *, name: str, agents: Sequence[str] | None = None
) -> list[Conversation]:
    """Return one conversation a recorded call of these agents: what was asked and, to be learned, the answer."""
    found: list[Conversation] = []
    for span in calls_of_agents(spans, agents=agents):
        asked = _json_list(span.attributes.get(key.INPUT_MESSAGES))
        answered = _json_list(span.attributes.get(key.OUTPUT_MESSAGES))
        if asked and answered:
            tools = _json_list(span.attributes.get(key.TOOL_DEFINITIONS))
            found.append(
                Conversation(
                    name=name, messages=[*asked, answered[0]], tools=tools or None, answers=[len(asked)]
                )
            )
    return found


def conversations_from_file(path: Path) -> list[Conversation]:
    """Read the conversations of a ``.jsonl`` or ``.json`` file.

    Raises:
        ConfigError: the file cannot be read, or an entry is of neither format; the message names file and line.
    """
    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return [_conversation(entry, where) for where, entry in _entries(text, path)]


def _entries(text: str, path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    if path.suffix == ".jsonl":
        numbered = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        found = [(f"{path}:{number}", _parsed(line, f"{path}:{number}")) for number, line in numbered]
    else:
        whole = _parsed(text, str(path))
        if not isinstance(whole, list):
            raise ConfigError(f"{path} must be a list of conversations, or a .jsonl file with one a line")
        found = [(f"{path}[{index}]", entry) for index, entry in enumerate(cast("list[Any]", whole))]
    if not found:
        raise ConfigError(f"{path} has no conversations")
    for where, entry in found:
        if not isinstance(entry, Mapping):
            raise ConfigError(f"{where} is not a JSON object")
    return cast("list[tuple[str, Mapping[str, Any]]]", found)


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from error


def _conversation(entry: Mapping[str, Any], where: str) -> Conversation:
    tools = _tools(entry.get("tools"), where)
    if isinstance(entry.get("messages"), list):
        messages = [_openai_message(one, where) for one in entry["messages"]]
    elif isinstance(entry.get("conversations"), list):
        said = [_sharegpt_message(one, where) for one in entry["conversations"]]
        system = entry.get("system")
        messages = [{"role": "system", "content": system}, *said] if system else said
    else:
        raise ConfigError(f"{where} has neither messages (OpenAI) nor conversations (ShareGPT)")
    answers = [
        index
        for index, message in enumerate(messages)
        if message["role"] == "assistant" and message.pop("weight", 1) != 0
    ]
    return Conversation(name=where, messages=messages, tools=tools, answers=answers)


def _openai_message(message: Any, where: str) -> Message:
    if not isinstance(message, Mapping) or not isinstance(cast("Message", message).get("role"), str):
        raise ConfigError(f"{where}: every message must be an object with a role")
    return dict(cast("Message", message))


_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "observation": "tool",
    "tool": "tool",
    "function_response": "tool",
}


def _sharegpt_message(turn: Any, where: str) -> Message:
    said = cast("Message", turn) if isinstance(turn, Mapping) else {}
    speaker, value = said.get("from"), said.get("value")
    if not isinstance(value, str):
        raise ConfigError(f"{where}: every turn must have from and value, both text")
    if speaker == "function_call":
        called = _parsed(value, f"{where}: a function_call")
        calls = cast("list[Any]", called if isinstance(called, list) else [called])
        functions = [_function(call, where) for call in calls]
        return {"role": "assistant", "content": "", "tool_calls": functions}
    if speaker not in _ROLES:
        raise ConfigError(
            f"{where}: from is {speaker!r}; known are function_call, {', '.join(sorted(_ROLES))}"
        )
    weight = {"weight": said["weight"]} if "weight" in said else {}
    return {"role": _ROLES[speaker], "content": value, **weight}


def _function(call: Any, where: str) -> dict[str, Any]:
    if not isinstance(call, Mapping) or not isinstance(cast("Message", call).get("name"), str):
        raise ConfigError(f"{where}: a function_call must be an object with name and arguments")
    named = cast("Message", call)
    return {"type": "function", "function": {"name": named["name"], "arguments": named.get("arguments", {})}}


def _tools(tools: Any, where: str) -> list[dict[str, Any]] | None:
    """The tools in OpenAI's shape; ShareGPT files have them as JSON text, and as bare functions."""
    given = _parsed(tools, f"{where}: tools") if isinstance(tools, str) and tools.strip() else tools
    if not given:
        return None
    if not isinstance(given, list):
        raise ConfigError(f"{where}: tools must be a list")
    return [
        cast("dict[str, Any]", tool)
        if isinstance(tool, Mapping) and "function" in tool
        else {"type": "function", "function": tool}
        for tool in cast("list[Any]", given)
    ]


def _json_list(text: Any) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", json.loads(text)) if isinstance(text, str) else []
