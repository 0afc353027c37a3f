"""Canonical chunks -> Anthropic's event stream.

Thinking and text are passed on as they come. A tool's input is held back until its choice is finished, so that it is
always a whole JSON object, as it is with Anthropic; pings tell meanwhile that the answer goes on. A tool with
``eager_input_streaming`` gets its input as it comes, whatever it is. So the blocks of a stream are those of the plain
answer, however it was cut into chunks. ``message_delta`` and ``message_stop`` come from ``end`` alone.

Source: https://docs.claude.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from agl.proxy.dialects.anthropic.answer import (
    BESIDE,
    first_choice,
    input_text,
    integer,
    message_id,
    model_of,
    reasoning_of,
    stop_fields,
    text_of,
    tool_id,
    usage,
)
from agl.proxy.dialects.anthropic.errors import Json, error_object, object_or_empty, objects_in
from agl.proxy.dialects.anthropic.request import eager_tools, wants_thinking, wants_thinking_text
from agl.proxy.dialects.base import ClientRequest

_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_EMPTY: Mapping[str, Json] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


@dataclass(slots=True)
class _Tool:
    """One tool call as far as it has come."""

    call_id: str | None = None
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    block: int | None = None
    """The index of its content block, once that is open."""


class MessageEvents:
    """Writes the events of one streamed answer."""

    def __init__(self, request: ClientRequest) -> None:
        self._request = request
        self._eager = eager_tools(request.native)
        self._thinking = wants_thinking(request.native)
        self._thinking_text = wants_thinking_text(request.native)
        self._id: str | None = None
        self._num_blocks = 0
        self._open: str | None = None
        """The type of the text or thinking block that is open; it is the last one."""
        self._tools: dict[int, _Tool] = {}

    def chunk(self, chunk: Mapping[str, Any]) -> bytes:
        """Return the events of a chunk; a ping for one whose content is held back."""
        events: list[bytes] = []
        if self._id is None:
            events.append(self._start(chunk))
        held = False
        for choice in objects_in(chunk.get("choices")):
            if choice.get("index") not in (0, None):  # a Message holds one choice
                continue
            delta = object_or_empty(choice.get("delta"))
            words = self._delta(delta)
            held = held or (not words and bool(reasoning_of(delta) or delta.get("tool_calls")))
            events += words
            if choice.get("finish_reason") is not None:
                events += self._finish()
        return b"".join(events) if events or not held else _PING

    def end(self, answer: Mapping[str, Any]) -> bytes:
        """Return the last events; of an answer that did not come in chunks, all events."""
        events: list[bytes] = []
        if self._id is None:
            events.append(self._start(answer))
            events += self._whole(object_or_empty(first_choice(answer).get("message")))
        events += self._finish()
        stop = stop_fields(self._request, first_choice(answer))
        events.append(_event("message_delta", delta=stop, usage=usage(answer)))
        events.append(_event("message_stop"))
        return b"".join(events)

    def error(self, message: str, *, status: int, code: str, body: object = None) -> bytes:
        """Return the event of a failure in mid-stream."""
        return _event("error", **error_object(message, status=status, code=code, body=body))

    def _start(self, told: Mapping[str, Any]) -> bytes:
        self._id = message_id(told.get("id"))
        counted = {**usage({**told, "choices": ()}), "output_tokens": 0}
        counted.pop("output_tokens_details", None)
        opening: Json = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": model_of(self._request, told),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": counted,
        }
        return _event("message_start", message=opening)

    def _delta(self, delta: Mapping[str, Any]) -> list[bytes]:
        events: list[bytes] = []
        thoughts = reasoning_of(delta)
        if thoughts and self._thinking:
            events += self._piece("thinking", thoughts if self._thinking_text else "")
        events += self._piece("text", text_of(delta)) if text_of(delta) else []
        for call in objects_in(delta.get("tool_calls")):
            events += self._call(call)
        return events

    def _piece(self, kind: str, piece: str) -> list[bytes]:
        """A piece of text or thinking, in the open block if that is of its kind, else in a new one."""
        events: list[bytes] = []
        if self._open != kind:
            events += self._close()
            events.append(self._block(_EMPTY[kind]))
            self._open = kind
        if piece:
            events.append(self._block_delta(self._num_blocks - 1, {"type": f"{kind}_delta", kind: piece}))
        return events

    def _call(self, call: Mapping[str, Any]) -> list[bytes]:
        function = object_or_empty(call.get("function"))
        position = integer(call.get("index")) or 0
        tool = self._tools.setdefault(position, _Tool())
        tool.call_id = tool.call_id or call.get("id")
        tool.name = tool.name or str(function.get("name") or "")
        piece = function.get("arguments")
        if isinstance(piece, str) and piece:
            tool.arguments.append(piece)
        if tool.name not in self._eager:
            return []
        events: list[bytes] = []
        if tool.block is None:
            events += self._close()
            events += self._open_tool(tool, position)
            piece = "".join(tool.arguments)
        if isinstance(piece, str) and piece and tool.block is not None:
            events.append(_json_delta(tool.block, piece))
        return events

    def _open_tool(self, tool: _Tool, position: int) -> list[bytes]:
        tool.block = self._num_blocks
        own_id = tool_id({"id": tool.call_id}, self._id or "", position)
        return [self._block({"type": "tool_use", "id": own_id, "name": tool.name, "input": {}})]

    def _finish(self) -> list[bytes]:
        """The tools that were held back, and the ends of what is open."""
        events = self._close()
        for position, tool in sorted(self._tools.items()):
            if tool.block is None:
                events += self._open_tool(tool, position)
                events.append(_json_delta(self._num_blocks - 1, input_text("".join(tool.arguments))))
            events.append(_event("content_block_stop", index=tool.block))
        self._tools = {}
        if self._num_blocks == 0:
            events += [self._block(_EMPTY["text"]), _event("content_block_stop", index=0)]
        return events

    def _close(self) -> list[bytes]:
        if self._open is None:
            return []
        self._open = None
        return [_event("content_block_stop", index=self._num_blocks - 1)]

    def _whole(self, said: Json) -> list[bytes]:
        """The blocks of a whole message."""
        blocks = object_or_empty(said.get(BESIDE)).get("content")
        if isinstance(blocks, list):
            return [
                event for block in objects_in(cast("object", blocks)) for event in self._native_block(block)
            ]
        calls = objects_in(said.get("tool_calls"))
        return self._delta({**said, "tool_calls": [{**call, "index": i} for i, call in enumerate(calls)]})

    def _native_block(self, block: Json) -> list[bytes]:
        """A block as the provider gave it: what its deltas carry in deltas, anything else with its beginning."""
        kind = block.get("type")
        deltas: list[Json] = []
        begun: Json = block
        if kind == "tool_use":
            deltas = [{"type": "input_json_delta", "partial_json": input_text(block.get("input"))}]
            begun = {**block, "input": {}}
        elif kind == "thinking":
            deltas = [{"type": "thinking_delta", "thinking": block.get("thinking", "")}]
            deltas.append({"type": "signature_delta", "signature": block.get("signature", "")})
            begun = {**block, "thinking": "", "signature": ""}
        elif kind == "text":
            deltas = [{"type": "text_delta", "text": block.get("text", "")}]
            begun = {**block, "text": ""}
        start, index = self._block(begun), self._num_blocks - 1
        events = [start, *(self._block_delta(index, delta) for delta in deltas)]
        return [*events, _event("content_block_stop", index=index)]

    def _block(self, begun: Mapping[str, Any]) -> bytes:
        self._num_blocks += 1
        return _event("content_block_start", index=self._num_blocks - 1, content_block=begun)

    def _block_delta(self, index: int, delta: Mapping[str, Any]) -> bytes:
        return _event("content_block_delta", index=index, delta=delta)


def _json_delta(index: int, piece: str) -> bytes:
    delta = {"type": "input_json_delta", "partial_json": piece}
    return _event("content_block_delta", index=index, delta=delta)


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps({"type": kind, **fields}) + b"\n\n"
