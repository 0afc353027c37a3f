"""LangChain, OpenAI's Agents SDK (over Responses) and curl as clients under test."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import openai
import orjson
from agents import Agent, FunctionTool, OpenAIResponsesModel, RunConfig, Runner
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from openai_exchange import DONE, sse_data
from proxy_clients import (
    SCHEMA,
    WISHES,
    Said,
    Weather,
    chat_fields,
    output_of,
    running,
    said_by_chunks,
    user,
)

from agl.types import LLM

_FORM = {
    "type": "json_schema",
    "json_schema": {"name": "Weather", "strict": True, "schema": Weather.model_json_schema()},
}


class LangChain:
    """``ChatOpenAI``."""

    features = tuple(WISHES)
    ends = {"text": "stop", "tools": "tool_calls"}
    failures = (openai.APIError,)

    async def ask(self, llm: LLM, feature: str, *, stream: bool) -> Said:
        text = WISHES[feature]
        if feature == "n>1":  # which it does not stream
            (choices,) = (await _chat(llm, n=2).agenerate([[HumanMessage(text)]])).generations
            said = _said(choices[0].message)
            said.texts = [choice.text for choice in choices]
            return said
        chat: Any = _chat(llm)
        if "tools" in feature:
            tool = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
            chat = chat.bind_tools([tool])
        if feature == "structured":
            chat = chat.with_structured_output(Weather, method="json_schema", include_raw=True)
        told = await _sum(chat.astream(text)) if stream else await chat.ainvoke(text)
        if feature != "structured":
            return _said(told)
        said = _said(told["raw"])
        said.forms = [told["parsed"]]
        return said

    async def say(self, llm: LLM, text: str, *, stream: bool) -> None:
        await (_sum(_chat(llm).astream(text)) if stream else _chat(llm).ainvoke(text))

    async def leave(self, llm: LLM, text: str) -> None:
        async with aclosing(_chat(llm).astream(text)) as chunks:
            async for chunk in chunks:
                if chunk.text:
                    return


class AgentsSdk:
    """An ``Agent`` of OpenAI's Agents SDK with a model behind Responses, run until it has its final output."""

    features = ("text", "tools", "parallel tools", "structured")
    ends = {"text": "completed", "tools": "completed"}
    failures = (openai.APIError,)

    async def ask(self, llm: LLM, feature: str, *, stream: bool) -> Said:
        async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key, max_retries=0) as client:
            said = Said(finish="completed")
            agent = Agent(
                name="forecaster",
                model=OpenAIResponsesModel(model=llm.model, openai_client=client),
                tools=[_weather_tool(said)] if "tools" in feature else [],
                output_type=Weather if feature == "structured" else None,
            )
            ran = await _run(agent, WISHES[feature], stream=stream)
        if feature == "structured":
            said.forms = [ran.final_output]
            said.texts = [item.raw_item.content[0].text for item in ran.new_items]
        else:
            said.texts = [ran.final_output]
        usage = ran.context_wrapper.usage
        said.usage = (usage.input_tokens, usage.output_tokens)
        return said

    async def say(self, llm: LLM, text: str, *, stream: bool) -> None:
        async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key, max_retries=0) as client:
            model = OpenAIResponsesModel(model=llm.model, openai_client=client)
            await _run(Agent(name="caller", model=model), text, stream=stream)

    async def leave(self, llm: LLM, text: str) -> None:
        async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key, max_retries=0) as client:
            model = OpenAIResponsesModel(model=llm.model, openai_client=client)
            run = Runner.run_streamed(
                Agent(name="caller", model=model), text, run_config=RunConfig(tracing_disabled=True)
            )
            async for event in run.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    run.cancel()
                    break


class Curl:
    """curl, and the least that a script reads of what it writes."""

    features = tuple(WISHES)
    ends = LangChain.ends
    failures = (AssertionError,)

    async def ask(self, llm: LLM, feature: str, *, stream: bool) -> Said:
        asked = {"messages": user(WISHES[feature]), **chat_fields(feature)}
        if feature == "structured":
            asked["response_format"] = _FORM
        written = await output_of(*_command(llm), stdin=_body(llm, asked, stream=stream))
        if stream:
            *chunks, done = sse_data(written)
            assert done == DONE
            said = said_by_chunks(chunks)
        else:
            answer = orjson.loads(written)
            said = said_by_chunks([_as_chunk(answer)])
        if feature == "structured":
            said.forms = [Weather.model_validate_json(text) for text in said.texts]
        return said

    async def say(self, llm: LLM, text: str, *, stream: bool) -> None:
        written = await output_of(*_command(llm), stdin=_body(llm, {"messages": user(text)}, stream=stream))
        assert b'"error"' not in written, written

    async def leave(self, llm: LLM, text: str) -> None:
        stdin = _body(llm, {"messages": user(text)}, stream=True)
        async with running(*_command(llm), stdin=stdin) as process:
            assert process.stdout is not None
            await process.stdout.readline()


def _chat(llm: LLM, **settings: Any) -> ChatOpenAI:
    settings = {"max_retries": 0, "stream_usage": True, **settings}
    return ChatOpenAI(model=llm.model, base_url=llm.base_url, api_key=llm.api_key, **settings)


async def _sum(chunks: Any) -> Any:
    whole = None
    async for chunk in chunks:
        whole = chunk if whole is None else whole + chunk
    return whole


def _said(message: Any) -> Said:
    usage = message.usage_metadata
    return Said(
        texts=[message.text] if message.text else [],
        calls=[(call["name"], call["args"]) for call in message.tool_calls],
        finish=message.response_metadata["finish_reason"],
        usage=(usage["input_tokens"], usage["output_tokens"]),
    )


def _weather_tool(said: Said) -> FunctionTool:
    async def weather(_: Any, arguments: str) -> str:
        said.calls.append(("weather", json.loads(arguments)))
        return f"sunny in {json.loads(arguments)['city']}"

    return FunctionTool(
        name="weather", description="The weather.", params_json_schema=SCHEMA, on_invoke_tool=weather
    )


async def _run(agent: Agent, text: str, *, stream: bool) -> Any:
    config = RunConfig(tracing_disabled=True)
    if not stream:
        return await Runner.run(agent, text, run_config=config)
    run = Runner.run_streamed(agent, text, run_config=config)
    async for _ in run.stream_events():
        pass
    return run


def _command(llm: LLM) -> list[str]:
    url = f"{llm.base_url}/chat/completions"
    headers = ["-H", "content-type: application/json", "-H", f"authorization: Bearer {llm.api_key}"]
    return ["curl", "-sS", "--no-buffer", url, *headers, "--data-binary", "@-"]


def _body(llm: LLM, asked: dict[str, Any], *, stream: bool) -> bytes:
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return orjson.dumps({"model": llm.model, **asked, **options})


def _as_chunk(answer: dict[str, Any]) -> dict[str, Any]:
    """A whole answer as if it were one chunk."""
    choices = [
        {**choice, "delta": _with_indices(choice["message"])}
        for choice in sorted(answer["choices"], key=lambda choice: choice["index"])
    ]
    return {**answer, "choices": choices}


def _with_indices(message: dict[str, Any]) -> dict[str, Any]:
    calls = [{"index": index, **call} for index, call in enumerate(message.get("tool_calls") or [])]
    return {**message, "tool_calls": calls}
