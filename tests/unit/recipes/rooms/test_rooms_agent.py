"""The booking agent: tool calls, an exact reward, and a note for whoever reads the transcript."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, InternalServerError
from rooms_recipe import agent
from rooms_recipe.office import list_rooms

from agl.types import LLM, PromptTemplate

TASK = {"request": "A meeting of 2 people on 2026-03-02 at 10:00 for 60 minutes.", "answer": "Fir"}
LLM_RESOURCE = LLM(base_url="http://model.test/v1", model="policy", sampling={"temperature": 0.0})
PROMPT = PromptTemplate(template="Book: {request}")

Answers = Callable[..., list[dict[str, Any]]]


def call(arguments: str, name: str = "list_rooms") -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}],
    }


@pytest.fixture
async def model() -> AsyncIterator[Answers]:
    """Gives the agent a client whose model says the given messages in turn; returns the requests it gets."""
    opened: list[httpx.AsyncClient] = []

    def answers(*messages: Any) -> list[dict[str, Any]]:
        requests: list[dict[str, Any]] = []

        def handle(request: httpx.Request) -> httpx.Response:
            requests.append(json.loads(request.content))
            message = messages[len(requests) - 1]
            if isinstance(message, int):
                return httpx.Response(message, json={"error": {"message": "down"}})
            if isinstance(message, str):
                message = {"role": "assistant", "content": message}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
            return httpx.Response(200, json=body)

        http = httpx.AsyncClient(transport=httpx.MockTransport(handle))
        opened.append(http)
        agent.clients[asyncio.get_running_loop()] = AsyncOpenAI(
            base_url="http://unset", api_key="none", http_client=http, max_retries=0
        )
        return requests

    yield answers
    for http in opened:
        await http.aclose()


async def test_the_agent_looks_up_the_rooms_and_names_one(model: Answers) -> None:
    requests = model(call('{"date": "2026-03-02"}'), "The best:\nROOM: fir")
    assert await agent.booking_agent(TASK, LLM_RESOURCE, PROMPT) == 1.0
    assert requests[0]["messages"] == [{"role": "user", "content": f"Book: {TASK['request']}"}]
    assert requests[0]["temperature"] == 0.0
    assert requests[1]["messages"][-1] == {
        "role": "tool",
        "tool_call_id": "1",
        "content": list_rooms("2026-03-02"),
    }


@pytest.mark.parametrize(
    "text", ["ROOM: Oak", "Fir", "I would take Fir.", "ROOM: Fir\nROOM: Oak", "", "ROOM: none"]
)
async def test_anything_else_is_wrong(model: Answers, text: str) -> None:
    model(text)
    assert await agent.booking_agent(TASK, LLM_RESOURCE, PROMPT) == 0.0


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (call('{"day": 1}'), "error: give arguments like"),
        (call("not json"), "error: give arguments like"),
        (call("{}", name="book"), "error: there is no tool 'book'"),
        (call('{"date": "soon"}'), "error: 'soon' is no date"),
    ],
)
async def test_a_mistake_with_the_tool_is_told_to_the_model(model: Answers, message: Any, told: str) -> None:
    requests = model(message, "ROOM: Fir")
    assert await agent.booking_agent(TASK, LLM_RESOURCE, PROMPT) == 1.0
    assert requests[1]["messages"][-1]["content"].startswith(told)


async def test_it_gives_up_after_some_turns(model: Answers) -> None:
    requests = model(*[call('{"date": "2026-03-02"}')] * 9)
    assert await agent.booking_agent(TASK, LLM_RESOURCE, PROMPT, max_turns=3) == 0.0
    assert len(requests) == 3


async def test_a_failing_model_is_an_error_and_no_zero(model: Answers) -> None:
    model(500)
    with pytest.raises(InternalServerError):
        await agent.booking_agent(TASK, LLM_RESOURCE, PROMPT)
