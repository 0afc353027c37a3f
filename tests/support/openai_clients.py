"""OpenAI's own SDK as a client under test, async and blocking."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import openai
from openai import AsyncOpenAI, OpenAI
from proxy_clients import WISHES, Said, Weather, chat_fields, output_of, said_by_chunks, user

from agl.types import LLM

_OPTIONS = {"include_usage": True}
_DYING = """
import sys, openai
url, key, model, text = sys.argv[1:]
client = openai.OpenAI(base_url=url, api_key=key, max_retries=0)
client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}])
"""


class OpenAIAsync:
    """``AsyncOpenAI``; streams by its helper, which puts them together."""

    features = tuple(WISHES)
    ends = {"text": "stop", "tools": "tool_calls"}
    failures = (openai.APIError,)

    async def ask(self, llm: LLM, feature: str, *, stream: bool) -> Said:
        asked: dict[str, Any] = {
            "model": llm.model,
            "messages": user(WISHES[feature]),
            **chat_fields(feature),
        }
        if feature == "structured":
            asked["response_format"] = Weather
        async with _async_client(llm) as client:
            if not stream:
                return _said(await client.chat.completions.parse(**asked))
            async with client.chat.completions.stream(**asked, stream_options=_OPTIONS) as events:
                return _said(await events.get_final_completion())

    async def say(self, llm: LLM, text: str, *, stream: bool) -> None:
        async with _async_client(llm) as client:
            answer = await client.chat.completions.create(model=llm.model, messages=user(text), stream=stream)
            if stream:
                async for _ in answer:
                    pass

    async def leave(self, llm: LLM, text: str) -> None:
        async with _async_client(llm) as client:
            call = client.chat.completions.create(model=llm.model, messages=user(text), stream=True)
            async with await call as chunks:
                await anext(aiter(chunks))


class OpenAISync:
    """``OpenAI``; its streams are a plain loop over chunks."""

    features = tuple(WISHES)
    ends = OpenAIAsync.ends
    failures = (openai.APIError,)

    async def ask(self, llm: LLM, feature: str, *, stream: bool) -> Said:
        return await asyncio.to_thread(self._ask, llm, feature, stream=stream)

    async def say(self, llm: LLM, text: str, *, stream: bool) -> None:
        if text.startswith("wait"):  # a thread cannot be cancelled, a process can
            await output_of(sys.executable, "-c", _DYING, llm.base_url, llm.api_key, llm.model, text)
        else:
            await asyncio.to_thread(self._say, llm, text, stream=stream)

    async def leave(self, llm: LLM, text: str) -> None:
        await asyncio.to_thread(self._leave, llm, text)

    def _ask(self, llm: LLM, feature: str, *, stream: bool) -> Said:
        asked: dict[str, Any] = {
            "model": llm.model,
            "messages": user(WISHES[feature]),
            **chat_fields(feature),
        }
        with _client(llm) as client:
            completions = client.chat.completions
            if feature == "structured" and not stream:
                return _said(completions.parse(**asked, response_format=Weather))
            if feature == "structured":
                told = {"response_format": Weather, "stream_options": _OPTIONS}
                with completions.stream(**asked, **told) as events:
                    return _said(events.get_final_completion())
            if not stream:
                return _said(completions.create(**asked))
            chunks = completions.create(**asked, stream=True, stream_options=_OPTIONS)
            return said_by_chunks([chunk.to_dict() for chunk in chunks])

    def _say(self, llm: LLM, text: str, *, stream: bool) -> None:
        with _client(llm) as client:
            answer = client.chat.completions.create(model=llm.model, messages=user(text), stream=stream)
            if stream:
                list(answer)

    def _leave(self, llm: LLM, text: str) -> None:
        with _client(llm) as client:
            call = client.chat.completions.create(model=llm.model, messages=user(text), stream=True)
            with call as chunks:
                next(iter(chunks))


def _async_client(llm: LLM) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key, max_retries=0)


def _client(llm: LLM) -> OpenAI:
    return OpenAI(base_url=llm.base_url, api_key=llm.api_key, max_retries=0)


def _said(completion: Any) -> Said:
    said = Said(usage=(completion.usage.prompt_tokens, completion.usage.completion_tokens))
    for choice in completion.choices:
        said.finish = choice.finish_reason
        if choice.message.content:  # in a stream an empty text comes before the tools
            said.texts.append(choice.message.content)
        for call in choice.message.tool_calls or []:
            said.calls.append((call.function.name, json.loads(call.function.arguments)))
        if getattr(choice.message, "parsed", None) is not None:
            said.forms.append(choice.message.parsed)
    return said
