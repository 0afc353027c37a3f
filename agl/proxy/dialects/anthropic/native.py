"""Anthropic's own answers and streams -> canonical ones, for the record of calls that were passed through.

What the canonical form cannot say (signatures of thinking, redacted thinking, citations, server tools, the borders of
text blocks, rarer stop reasons) stands beside it in the message's ``anthropic``, and only where there is any, so that
the same Message can be worded again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

from agl.errors import InferenceError
from agl.proxy.dialects.anthropic.answer import BESIDE, INVALID, content_blocks, message_id, stop_fields
from agl.proxy.dialects.anthropic.content import arguments_text
from agl.proxy.dialects.anthropic.errors import Json, error_from_event, object_or_empty, objects_in
from agl.proxy.dialects.base import ClientRequest

_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_DELTAS = {"text_delta": ("text", "content"), "thinking_delta": ("thinking", "reasoning_content")}


def chat_answer(native: Mapping[str, Any]) -> Json:
    """Return a Message as a chat completion."""
    blocks = objects_in(native.get("content"))
    calls = [_tool_call(block) for block in blocks if block.get("type") == "tool_use"]
    text, thoughts = _joined(blocks, "text"), _joined(blocks, "thinking")
    said: Json = {"role": "assistant", "content": text if text or not calls else None}
    if thoughts:
        said["reasoning_content"] = thoughts
    if calls:
        said["tool_calls"] = calls
    choice: Json = {"index": 0, "message": said, "finish_reason": _finish_reason(native)}
    if native.get("stop_sequence") is not None:
        choice["stop_reason"] = native["stop_sequence"]
    beside = _beside(native, choice)
    if beside:
        said[BESIDE] = beside
    answer: Json = {"id": native.get("id"), "object": "chat.completion", "created": 0}
    answer["model"], answer["choices"] = native.get("model"), [choice]
    if native.get("usage") is not None:
        answer["usage"] = chat_usage(object_or_empty(native["usage"]))
    return answer


def chat_usage(native: Mapping[str, Any]) -> Json:
    """Return OpenAI's usage: its prompt tokens count those of the cache."""
    read = _count(native, "cache_read_input_tokens")
    written = _count(native, "cache_creation_input_tokens")
    prompt = _count(native, "input_tokens") + read + written
    output = _count(native, "output_tokens")
    counted: Json = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": read, "cache_creation_tokens": written},
    }
    details = object_or_empty(native.get("output_tokens_details"))
    if details:
        counted["completion_tokens_details"] = {"reasoning_tokens": _count(details, "thinking_tokens")}
    return counted


class MessageReader:
    """Reads one native stream. Holds the Message as far as it has come."""

    def __init__(self) -> None:
        self._message: Json = {"content": []}
        self._blocks: dict[int, Json] = {}
        self._calls: dict[int, int] = {}
        """The position among the tool calls of each ``tool_use`` block."""
        self._inputs: dict[int, str] = {}

    def event(self, event: str, data: Mapping[str, Any]) -> list[Json]:
        """Return the canonical chunks of one event.

        Raises:
            InferenceError: the event tells of an error, or is none of Anthropic's.
        """
        kind = data.get("type") or event
        if kind == "error":
            raise error_from_event(data)
        try:
            return self._chunks(kind, data)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f"the provider's stream has an event {kind!r} of another shape than Anthropic's"
            raise InferenceError(message, status=502) from error

    def _chunks(self, kind: str, data: Mapping[str, Any]) -> list[Json]:
        if kind == "message_start":
            self._message = {**data["message"], "content": []}
            return [self._chunk({"role": "assistant", "content": ""})]
        if kind == "content_block_start":
            return self._begun(data["index"], data["content_block"])
        if kind == "content_block_delta":
            return self._more(data["index"], data["delta"])
        if kind == "content_block_stop":
            return self._ended(data["index"])
        if kind == "message_delta":
            return [self._finished(data)]
        if kind == "message_stop":
            return [
                {
                    **self._head(),
                    "choices": [],
                    "usage": chat_usage(object_or_empty(self._message.get("usage"))),
                }
            ]
        return []

    def _begun(self, index: int, block: Mapping[str, Any]) -> list[Json]:
        self._blocks[index] = dict(block)
        self._message["content"].append(self._blocks[index])
        kind = block.get("type")
        if kind == "tool_use":
            self._calls[index] = len(self._calls)
            function = {"name": block.get("name"), "arguments": ""}
            call = {
                "index": self._calls[index],
                "id": block.get("id"),
                "type": "function",
                "function": function,
            }
            return [self._chunk({"tool_calls": [call]})]
        if kind in ("text", "thinking") and block.get(kind):
            return [self._chunk({_DELTAS[f"{kind}_delta"][1]: block[kind]})]
        return []

    def _more(self, index: int, delta: Mapping[str, Any]) -> list[Json]:
        block = self._blocks[index]
        kind = cast("str", delta.get("type"))
        if kind in _DELTAS:
            here, canonical = _DELTAS[kind]
            block[here] = block.get(here, "") + delta[here]
            return [self._chunk({canonical: delta[here]})] if delta[here] else []
        if kind == "input_json_delta":
            self._inputs[index] = self._inputs.get(index, "") + delta["partial_json"]
            return self._arguments(index, delta["partial_json"])
        if kind == "signature_delta":
            block["signature"] = delta["signature"]
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        return []

    def _ended(self, index: int) -> list[Json]:
        block = self._blocks[index]
        text = self._inputs.get(index, "")
        if text:
            block["input"] = _parsed(text)
        elif index in self._calls:  # an input without a delta stands in the block's beginning
            return self._arguments(index, arguments_text(block.get("input") or {}))
        return []

    def _arguments(self, index: int, piece: str) -> list[Json]:
        if index not in self._calls or not piece:
            return []
        return [
            self._chunk({"tool_calls": [{"index": self._calls[index], "function": {"arguments": piece}}]})
        ]

    def _finished(self, data: Mapping[str, Any]) -> Json:
        self._message.update(data["delta"])
        told = _without_nulls(object_or_empty(data.get("usage")))
        self._message["usage"] = {**object_or_empty(self._message.get("usage")), **told}
        choice = chat_answer(self._message)["choices"][0]
        beside = choice["message"].get(BESIDE)
        chunk = self._chunk({} if beside is None else {BESIDE: beside})
        chunk["choices"][0].update(
            (name, choice[name]) for name in ("finish_reason", "stop_reason") if name in choice
        )
        return chunk

    def _chunk(self, delta: Json) -> Json:
        return {**self._head(), "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}

    def _head(self) -> Json:
        told = self._message
        return {
            "id": told.get("id"),
            "object": "chat.completion.chunk",
            "created": 0,
            "model": told.get("model"),
        }


def _joined(blocks: list[Json], kind: str) -> str:
    """The texts of all blocks of a kind, which hold it under the kind's name."""
    return "".join(str(block.get(kind) or "") for block in blocks if block.get("type") == kind)


def _tool_call(block: Mapping[str, Any]) -> Json:
    function = {"name": block.get("name"), "arguments": arguments_text(block.get("input") or {})}
    return {"id": block.get("id"), "type": "function", "function": function}


def _finish_reason(native: Mapping[str, Any]) -> str | None:
    reason = native.get("stop_reason")
    return None if reason is None else _FINISH_REASONS.get(str(reason), "stop")


def _beside(native: Mapping[str, Any], choice: Json) -> Json:
    """What a Message worded from the canonical choice would not say."""
    shows_all = ClientRequest(
        chat={"stop": [choice["stop_reason"]] if "stop_reason" in choice else []},
        stream=False,
        native={"thinking": {"type": "enabled"}},
    )
    beside: Json = {}
    worded = content_blocks(shows_all, choice["message"], message_id(native.get("id")))
    given = objects_in(native.get("content"))
    if orjson.loads(orjson.dumps(worded)) != [_without_nulls(block) for block in given]:
        beside["content"] = given
    reason = native.get("stop_reason")
    if reason is not None and stop_fields(shows_all, choice)["stop_reason"] != reason:
        beside["stop_reason"] = reason
    if native.get("stop_details"):
        beside["stop_details"] = native["stop_details"]
    return beside


def _without_nulls(block: Mapping[str, Any]) -> Json:
    return {name: value for name, value in block.items() if value is not None}


def _parsed(text: str) -> Json:
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    return cast("Json", value) if isinstance(value, dict) else {INVALID: text}


def _count(native: Mapping[str, Any], name: str) -> int:
    value = native.get(name)
    return value if isinstance(value, int) else 0
