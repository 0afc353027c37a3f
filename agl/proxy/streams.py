"""Streams: canonical chunks put together to the canonical answer. Pure.

The answer is what the same call gives unstreamed, whatever the chunks' borders: text, reasoning and tool calls joined,
ids and logprobs in their order, choices by index. ``agl.proxy.dialects.base`` says what is in a chunk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from agl.errors import InferenceError
from agl.proxy.upstream import NATIVE

_HELD = ("choices", "usage", "prompt_token_ids", "object", NATIVE)
_CHOICE_HELD = ("index", "delta", "logprobs", "token_ids", "finish_reason", "message")


@dataclass(slots=True)
class _ToolCall:
    """One tool call as far as it has come."""

    call_id: str | None = None
    kind: str = "function"
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    other: dict[str, Any] = field(default_factory=dict[str, Any])

    def add(self, delta: Mapping[str, Any]) -> None:
        self.call_id = self.call_id or delta.get("id")
        self.kind = delta.get("type") or self.kind
        function = cast("Mapping[str, Any]", delta.get("function") or {})
        name = function.get("name")
        if name and name != self.name:  # some servers repeat it on every chunk
            self.name += name
        if function.get("arguments"):
            self.arguments.append(function["arguments"])
        for key, value in delta.items():
            if key not in ("index", "id", "type", "function") and value is not None:
                self.other[key] = value

    def worded(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.call_id, "type": self.kind, "function": function, **self.other}


@dataclass(slots=True)
class _Choice:
    """One choice as far as it has come."""

    texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """``content``, ``refusal``, ``reasoning_content``, ...: the pieces of what is text."""
    other: dict[str, Any] = field(default_factory=dict[str, Any])
    """What else is in the message."""
    calls: dict[int, _ToolCall] = field(default_factory=dict[int, _ToolCall])
    beside: dict[str, Any] = field(default_factory=dict[str, Any])
    """What else is in the choice."""
    token_ids: list[int] | None = None
    logprobs: dict[str, Any] | None = None
    finish_reason: str | None = None

    def add(self, choice: Mapping[str, Any]) -> None:
        delta = choice.get("delta")
        if delta:
            self._say(delta)
        ids = choice.get("token_ids")
        if ids is not None:
            if self.token_ids is None:
                self.token_ids = []
            self.token_ids += ids
        logprobs = choice.get("logprobs")
        if logprobs:
            self._weigh(logprobs)
        if choice.get("finish_reason") is not None:
            self.finish_reason = choice["finish_reason"]
        for key, value in choice.items():
            if key not in _CHOICE_HELD and value is not None:
                self.beside[key] = value

    def worded(self, index: int) -> dict[str, Any]:
        text = "".join(self.texts.get("content", ()))
        message: dict[str, Any] = {
            "role": self.other.get("role", "assistant"),
            "content": text if text or not (self.calls or self.texts.get("refusal")) else None,
        }
        for name, pieces in self.texts.items():
            if name != "content":
                message[name] = "".join(pieces)
        message |= {name: value for name, value in self.other.items() if name != "role"}
        if self.calls:
            message["tool_calls"] = [call.worded() for _, call in sorted(self.calls.items())]
        worded: dict[str, Any] = {
            "index": index,
            "message": message,
            "finish_reason": self.finish_reason,
            "logprobs": self.logprobs,
            **self.beside,
        }
        if self.token_ids is not None:
            worded["token_ids"] = self.token_ids
        return worded

    def _say(self, delta: Mapping[str, Any]) -> None:
        for name, value in delta.items():
            if name == "role":
                self.other["role"] = value
            elif name == "tool_calls":
                for call in cast("Sequence[Mapping[str, Any]]", value or ()):
                    self._call(call)
            elif isinstance(value, str):
                self.texts.setdefault(name, []).append(value)
            elif value is not None:
                self.other[name] = _joined(self.other.get(name), value)

    def _call(self, delta: Mapping[str, Any]) -> None:
        """A server that gives no index gives whole calls, or goes on with the last one."""
        index = delta.get("index")
        if index is None:
            index = len(self.calls) if delta.get("id") or not self.calls else max(self.calls)
        self.calls.setdefault(index, _ToolCall()).add(delta)

    def _weigh(self, logprobs: Mapping[str, Any]) -> None:
        held = self.logprobs
        if held is None:
            held = self.logprobs = {}
        for name, entries in logprobs.items():
            known = held.get(name)
            if known is None:
                held[name] = None if entries is None else list(entries)
            elif entries is not None:
                known += entries


class StreamedAnswer:
    """An answer that comes in chunks."""

    def __init__(self) -> None:
        self._beside: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}
        self._prompt_ids: list[int] | None = None
        self._usage: object = None
        self._first_version: object = None

    @property
    def begun(self) -> bool:
        """Whether anything of an answer has come."""
        return bool(self._choices)

    def is_finished(self, num_choices: int) -> bool:
        """Whether the model has ended each of so many choices; the usage may still come."""
        choices = self._choices
        return len(choices) >= num_choices and all(
            choice.finish_reason is not None for choice in choices.values()
        )

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Take the next chunk.

        Raises:
            InferenceError: 502, it is no chunk of a chat completion.
        """
        try:
            self._add(chunk)
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            message = f"the model server streamed what is no chunk of a chat completion: {error}"
            raise InferenceError(message, status=502) from error

    def answer(self) -> dict[str, Any]:
        """Return the ``chat.completion`` of what has come so far; it shares the lists of what is still to come."""
        answer: dict[str, Any] = {**self._beside, "object": "chat.completion"}
        answer["choices"] = [choice.worded(index) for index, choice in sorted(self._choices.items())]
        if self._usage is not None:
            answer["usage"] = self._usage
        if self._prompt_ids is not None:
            answer["prompt_token_ids"] = self._prompt_ids
        if self._first_version is not None and self._first_version != answer["policy_version"]:
            answer |= {"policy_version": self._first_version, "policy_version_end": answer["policy_version"]}
        return answer

    def _add(self, chunk: Mapping[str, Any]) -> None:
        for name, value in chunk.items():
            if name not in _HELD and value is not None:
                self._beside[name] = value
        if self._first_version is None:
            self._first_version = chunk.get("policy_version")
        if self._prompt_ids is None and chunk.get("prompt_token_ids") is not None:
            self._prompt_ids = list(chunk["prompt_token_ids"])
        if chunk.get("usage") is not None:
            self._usage = chunk["usage"]
        for choice in cast("Sequence[Mapping[str, Any]]", chunk.get("choices") or ()):
            index = int(choice.get("index") or 0)
            held = self._choices.get(index)
            if held is None:
                held = self._choices[index] = _Choice()
            held.add(choice)


def _joined(held: object, value: object) -> object:
    """What a field is that came in parts: lists are continued, objects field by field, all else is replaced."""
    if isinstance(held, list) and isinstance(value, list):
        return [*cast("list[object]", held), *cast("list[object]", value)]
    if isinstance(held, dict) and isinstance(value, dict):
        parts = cast("dict[str, object]", held)
        added = cast("dict[str, object]", value)
        return parts | {name: _piece(parts.get(name), part) for name, part in added.items()}
    return value


def _piece(held: object, value: object) -> object:
    if isinstance(held, str) and isinstance(value, str):
        return held + value
    return _joined(held, value) if value is not None else held
