"""What unmodified clients of the proxy have in common: what each asks for, and what its objects show of the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel

from agl.types import LLM

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WISHES = {
    "text": "say something",
    "tools": "call one tool",
    "parallel tools": "call both tools",
    "structured": "fill the form",
    "n>1": "say two things",
}
_PATIENCE = 20.0  # seconds to wait for a process of ours that was killed


class Weather(BaseModel):
    """The weather of a city."""

    city: str
    degrees: int


@dataclass(kw_only=True)
class Said:
    """What a client's objects show of an answer."""

    texts: list[str] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    forms: list[Weather] = field(default_factory=list)
    finish: str | None = None
    usage: tuple[int, int] | None = None


class ProxyClient(Protocol):
    """One client under test."""

    features: tuple[str, ...]
    """Of ``WISHES``, those that its format has."""
    ends: Mapping[str, str]
    """How it names the end of a ``text`` and of ``tools``."""
    failures: tuple[type[Exception], ...]
    """What it raises when the server refuses."""

    async def ask(self, llm: LLM, feature: str, *, stream: bool) -> Said:
        """Make the call of a feature and return what came."""
        ...

    async def say(self, llm: LLM, text: str, *, stream: bool) -> None:
        """Make a call with this text and take its answer; cancelling it is leaving."""
        ...

    async def leave(self, llm: LLM, text: str) -> None:
        """Begin a streamed call and leave at its first text."""
        ...


def chat_fields(feature: str) -> dict[str, Any]:
    """What a chat completion asks for, beside its messages."""
    if "tools" in feature:
        function = {"name": "weather", "parameters": SCHEMA, "strict": True}
        return {"tools": [{"type": "function", "function": function}]}
    return {"n": 2} if feature == "n>1" else {}


def message_fields(feature: str) -> dict[str, Any]:
    """What one of Anthropic's messages asks for, beside the messages."""
    return {"tools": [{"name": "weather", "input_schema": SCHEMA}]} if "tools" in feature else {}


def user(text: str) -> list[dict[str, Any]]:
    """A conversation that begins with this."""
    return [{"role": "user", "content": text}]


def said_by_chunks(chunks: Iterable[Mapping[str, Any]]) -> Said:
    """What the chunks of a chat completion say together, by the least that a client must know of them."""
    said = Said()
    texts: dict[int, str] = {}
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        if chunk.get("usage"):
            said.usage = (chunk["usage"]["prompt_tokens"], chunk["usage"]["completion_tokens"])
        for choice in chunk["choices"]:
            delta = choice["delta"]
            said.finish = choice["finish_reason"] or said.finish
            if delta.get("content"):
                texts[choice["index"]] = texts.get(choice["index"], "") + delta["content"]
            for call in delta.get("tool_calls") or []:
                held = calls.setdefault(call["index"], ["", ""])
                held[0] += call["function"].get("name") or ""
                held[1] += call["function"].get("arguments") or ""
    said.calls = [(name, json.loads(arguments)) for _, (name, arguments) in sorted(calls.items())]
    said.texts = [text for _, text in sorted(texts.items())]
    return said


@asynccontextmanager
async def running(*command: str, stdin: bytes = b"") -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program that is killed when the block ends before it does."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    try:
        process.stdin.write(stdin)
        process.stdin.close()
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        async with asyncio.timeout(_PATIENCE):
            await process.wait()


async def output_of(*command: str, stdin: bytes = b"") -> bytes:
    """What a program writes."""
    async with running(*command, stdin=stdin) as process:
        assert process.stdout is not None
        return await process.stdout.read()
