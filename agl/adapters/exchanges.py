"""Spans of one attempt -> its model calls as a person reads them: what was new in each question, and the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agl.types import Span
from agl.types import attributes as key

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One model call.

    Args:
        span: the record of the call.
        repeated: messages at the beginning of its input that an earlier call had at its beginning, too.
        asked: the messages behind them.
        answers: one a choice; empty where the call failed.
    """

    span: Span
    repeated: int
    asked: Sequence[Message]
    answers: Sequence[Message]


def exchanges_from_spans(spans: Sequence[Span]) -> list[Exchange]:
    """Return the calls of the attempt in the order in which they were asked, failed ones too.

    Where a proxy recorded calls, those; else whatever spans have messages in the form of OpenTelemetry's ``gen_ai``.
    """
    calls = [span for span in spans if _is_recorded(span)]
    calls = calls or [span for span in spans if key.INPUT_MESSAGES in span.attributes]
    heard: list[list[Message]] = []
    exchanges: list[Exchange] = []
    for span in sorted(calls, key=lambda span: (span.start_time_ns, span.sequence_id or 0)):
        asked = _messages(span.attributes.get(key.INPUT_MESSAGES))
        answers = _messages(span.attributes.get(key.OUTPUT_MESSAGES))
        repeated = max((_common(asked, earlier) for earlier in heard), default=0)
        heard.append([*asked, *answers[:1]])
        exchanges.append(Exchange(span=span, repeated=repeated, asked=asked[repeated:], answers=answers))
    return exchanges


def _is_recorded(span: Span) -> bool:
    """Whether it is a proxy's record of a call, answered or not."""
    return span.name.startswith(key.CHAT_SPAN_PREFIX) and key.DIALECT in span.attributes


def _messages(recorded: Any) -> list[Message]:
    """The messages of an attribute, whatever is in it: foreign spans may have anything there."""
    if isinstance(recorded, str):
        try:
            recorded = json.loads(recorded)
        except ValueError:
            return [{"role": "?", "content": recorded}]
    if not isinstance(recorded, list | tuple):
        return []
    found = cast("Sequence[Any]", recorded)
    return [
        cast("Message", one) if isinstance(one, Mapping) else {"role": "?", "content": one} for one in found
    ]


def _common(messages: Sequence[Message], earlier: Sequence[Message]) -> int:
    """How many messages both begin with."""
    count = 0
    for one, other in zip(messages, earlier, strict=False):
        if _told(one) != _told(other):
            break
        count += 1
    return count


def _told(message: Message) -> dict[str, Any]:
    """The message without fields that say nothing, which clients leave out or send as null."""
    return {name: value for name, value in message.items() if value not in (None, [], {}, "")}


def message_text(message: Message) -> str:
    """Return what a message says, in any of the shapes in which agents send them: words, then calls and their results.

    Parts that are no text (images, audio) are named by their kind.
    """
    parts = [_content(message.get("content")), _content(message.get("parts"))]
    parts += [_called(call) for call in cast("Sequence[Any]", message.get("tool_calls") or ())]
    if message.get("type") in ("function_call", "tool_call"):
        parts.append(_called(message))
    if "output" in message:
        parts.append(_content(message["output"]))
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        parts.append(f"[refusal] {refusal}")
    return "\n".join(part for part in parts if part)


def _content(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Mapping):
        return _part(cast("Message", content))
    if isinstance(content, list | tuple):
        return "\n".join(filter(None, (_content(part) for part in cast("Sequence[Any]", content))))
    return json.dumps(content, ensure_ascii=False, default=str)


def _part(part: Message) -> str:
    kind = str(part.get("type", ""))
    for name in ("text", "content", "thinking", "reasoning"):
        if isinstance(part.get(name), str):
            words = str(part[name])
            return words if name in ("text", "content") and kind != "reasoning" else f"[thinking] {words}"
    if kind in ("tool_use", "tool_call", "function_call"):
        return _called(part)
    for name in ("content", "result", "response", "output"):
        if part.get(name) is not None:
            return _content(part[name])
    return f"[{kind or 'part'}]"


def _called(call: Any) -> str:
    """``name(arguments)``."""
    if not isinstance(call, Mapping):
        return str(call)
    made = cast("Message", call)
    inner = made.get("function")
    function = cast("Message", inner) if isinstance(inner, Mapping) else made
    arguments = function.get("arguments", function.get("input"))
    text = (
        arguments
        if isinstance(arguments, str)
        else json.dumps(arguments or {}, ensure_ascii=False, default=str)
    )
    return f"-> {function.get('name', '?')}({text})"
