"""The model calls of an attempt: the conversation with tokens, seconds and the policy that answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agl.adapters.exchanges import Exchange, Message, message_text
from agl.cli.span_facts import call_facts, error_of, seconds_of
from agl.cli.text import columns_of, counted, plain, shortened, wrapped
from agl.types import attributes as key

SHOWN_LINES = 20
"""Of one message, unless all of it is asked for."""
_ROLE_WIDTH = 11


def call_lines(exchanges: Sequence[Exchange], *, width: int, full: bool) -> list[str]:
    """Return the conversation, call by call; ``full`` shows long messages to their end."""
    lines: list[str] = []
    for number, exchange in enumerate(exchanges, start=1):
        lines += [
            *([""] if lines else []),
            *wrapped(f"Call {number}  {call_facts(exchange.span)}", width=width),
        ]
        if exchange.repeated:
            lines.append(f"{'':{_ROLE_WIDTH}}(after {counted(exchange.repeated, 'message')} shown above)")
        for message in exchange.asked:
            lines += _message_lines(message, width=width, full=full)
        for choice, message in enumerate(exchange.answers):
            if len(exchange.answers) > 1:
                lines.append(f"{'':{_ROLE_WIDTH}}answer {choice + 1} of {len(exchange.answers)}")
            lines += _message_lines(message, width=width, full=full)
        if exchange.span.status.code == "error":
            lines += _labelled("error", error_of(exchange.span), width=width)
    return lines


def _message_lines(message: Message, *, width: int, full: bool) -> list[str]:
    role = message.get("role") or message.get("type") or "?"
    lines = _labelled(plain(role), message_text(message), width=width)
    if full or len(lines) <= SHOWN_LINES + 1:
        return lines
    left = len(lines) - SHOWN_LINES
    return [*lines[:SHOWN_LINES], f"{'':{_ROLE_WIDTH}}... {left} more lines (--full shows them)"]


def _labelled(role: str, text: str, *, width: int) -> list[str]:
    label = f"{shortened(role, _ROLE_WIDTH - 2)}:"
    padding = " " * max(0, _ROLE_WIDTH - 1 - columns_of(label))
    lines = wrapped(text, width=width, indent=" " * _ROLE_WIDTH)
    return [f"{padding}{label} {lines[0].strip()}".rstrip(), *lines[1:]]


def calls_as_json(exchanges: Sequence[Exchange]) -> list[dict[str, Any]]:
    """Return the calls as plain values: all messages of each, and how many of them earlier calls had, too."""
    return [
        {
            "span_id": exchange.span.span_id,
            "model": exchange.span.attributes.get(key.RESPONSE_MODEL)
            or exchange.span.attributes.get(key.REQUEST_MODEL),
            "agent": exchange.span.attributes.get(key.AGENT),
            "policy_version": exchange.span.attributes.get(key.POLICY_VERSION),
            "input_tokens": exchange.span.attributes.get(key.INPUT_TOKENS),
            "output_tokens": exchange.span.attributes.get(key.OUTPUT_TOKENS),
            "cost_usd": exchange.span.attributes.get(key.COST_USD),
            "seconds": seconds_of(exchange.span),
            "finish_reasons": exchange.span.attributes.get(key.FINISH_REASONS),
            "error": error_of(exchange.span) if exchange.span.status.code == "error" else None,
            "repeated_messages": exchange.repeated,
            "new_messages": list(exchange.asked),
            "answers": list(exchange.answers),
        }
        for exchange in exchanges
    ]
