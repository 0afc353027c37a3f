"""Spans of one attempt -> the conversation as a person reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, cast

from agl.adapters.triplets import is_call
from agl.types import Span
from agl.types import attributes as key


def messages_from_spans(spans: Sequence[Span]) -> list[dict[str, Any]]:
    """Return the messages of the attempt's longest conversation: the last call's input and its answer."""
    calls = [span for span in spans if is_call(span) and key.INPUT_MESSAGES in span.attributes]
    if not calls:
        return []
    last = max(calls, key=lambda span: span.sequence_id or 0)
    asked = cast("list[dict[str, Any]]", json.loads(last.attributes[key.INPUT_MESSAGES]))
    answered = cast("list[dict[str, Any]]", json.loads(last.attributes.get(key.OUTPUT_MESSAGES, "[]")))
    return [*asked, *answered[:1]]


def transcript(spans: Sequence[Span], *, width: int = 100) -> str:
    """Return the conversation as lines ``role: text``, long lines broken at ``width`` characters of text."""
    lines: list[str] = []
    for message in messages_from_spans(spans):
        broken = (
            part for line in _text(message).splitlines() for part in wrap(_printable(line), width) or [""]
        )
        for number, line in enumerate(broken):
            label = f"{_printable(str(message.get('role', '?')))}:" if number == 0 else ""
            lines.append(f"{label:>10} {line}")
    return "\n".join(lines)


def _text(message: Mapping[str, Any]) -> str:
    """The message's words and its tool calls."""
    content, tool_calls = message.get("content"), message.get("tool_calls")
    words = content if isinstance(content, str) or content is None else json.dumps(content)
    return "\n".join(part for part in (words, json.dumps(tool_calls) if tool_calls else None) if part)


def _printable(text: str) -> str:
    """The text with nothing in it that a terminal would obey."""
    return "".join(sign if sign.isprintable() else " " if sign == "\t" else "�" for sign in text)
