"""Anthropic's own SDK as a client under test, async and blocking."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import anthropic
from anthropic import Anthropic, AsyncAnthropic
from proxy_clients import WISHES, Said, Weather, message_fields, output_of, user

from agl.types import LLM

_FEATURES = ("text", "tools", "parallel tools", "structured")
_DYING = """
import sys, anthropic
url, key, model, text = sys.argv[1:]
client = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)
client.messages.create(model=model, max_tokens=64, messages=[{"role": "user", "content": text}])
"""


class AnthropicAsync:
    """``AsyncAnthropic``."""

    features = _FEATURES
    ends = {"text": "end_turn", "tools": "tool_use"}
    failures = (anthropic.APIError,)

    async def ask(self, llm: LLM, feature: str, *, stream: bool) -> Said:
        asked = {**_asked(llm, WISHES[feature]), **message_fields(feature)}
        form: dict[str, Any] = {"output_format": Weather} if feature == "structured" else {}
        async with _async_client(llm) as client:
            if stream:
                async with client.messages.stream(**asked, **form) as events:
                    return _said(await events.get_final_message())
            if form:
                return _said(await client.messages.parse(**asked, **form))
            return _said(await client.messages.create(**asked))

    async def say(self, llm: LLM, text: str, *, stream: bool) -> None:
        async with _async_client(llm) as client:
            answer = await client.messages.create(**_asked(llm, text), stream=stream)
            if stream:
                async for _ in answer:
                    pass

    async def leave(self, llm: LLM, text: str) -> None:
        async with _async_client(llm) as client, client.messages.stream(**_asked(llm, text)) as events:
            await anext(aiter(events.text_stream))


class AnthropicSync:
    """``Anthropic``."""

    features = _FEATURES
    ends = AnthropicAsync.ends
    failures = (anthropic.APIError,)

    async def ask(self, llm: LLM, feature: str, *, stream: bool) -> Said:
        return await asyncio.to_thread(self._ask, llm, feature, stream=stream)

    async def say(self, llm: LLM, text: str, *, stream: bool) -> None:
        if text.startswith("wait"):  # a thread cannot be cancelled, a process can
            url = llm.anthropic_base_url
            await output_of(sys.executable, "-c", _DYING, url, llm.api_key, llm.model, text)
        else:
            await asyncio.to_thread(self._say, llm, text, stream=stream)

    async def leave(self, llm: LLM, text: str) -> None:
        await asyncio.to_thread(self._leave, llm, text)

    def _ask(self, llm: LLM, feature: str, *, stream: bool) -> Said:
        asked = {**_asked(llm, WISHES[feature]), **message_fields(feature)}
        form: dict[str, Any] = {"output_format": Weather} if feature == "structured" else {}
        with _client(llm) as client:
            if stream:
                with client.messages.stream(**asked, **form) as events:
                    return _said(events.get_final_message())
            if form:
                return _said(client.messages.parse(**asked, **form))
            return _said(client.messages.create(**asked))

    def _say(self, llm: LLM, text: str, *, stream: bool) -> None:
        with _client(llm) as client:
            answer = client.messages.create(**_asked(llm, text), stream=stream)
            if stream:
                list(answer)

    def _leave(self, llm: LLM, text: str) -> None:
        with _client(llm) as client, client.messages.stream(**_asked(llm, text)) as events:
            next(iter(events.text_stream))


def _async_client(llm: LLM) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=llm.anthropic_base_url, api_key=llm.api_key, max_retries=0)


def _client(llm: LLM) -> Anthropic:
    return Anthropic(base_url=llm.anthropic_base_url, api_key=llm.api_key, max_retries=0)


def _asked(llm: LLM, text: str) -> dict[str, Any]:
    return {"model": llm.model, "max_tokens": 64, "messages": user(text)}


def _said(message: Any) -> Said:
    said = Said(finish=message.stop_reason)
    said.usage = (message.usage.input_tokens, message.usage.output_tokens)
    for block in message.content:
        if block.type == "text":
            said.texts.append(block.text)
            if getattr(block, "parsed_output", None) is not None:
                said.forms.append(block.parsed_output)
        else:
            said.calls.append((block.name, block.input))
    return said
