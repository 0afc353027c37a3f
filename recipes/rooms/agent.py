"""The agent: reads a request, looks at the rooms with a tool, and names the room to book.

Plain `openai` with tool calls, any model. What it is told stands in a prompt template that `agl` may improve.
"""

import asyncio
import json
import re
from typing import Any
from weakref import WeakKeyDictionary

from openai import AsyncOpenAI

import agl

from .office import list_rooms

TOOL = {
    "type": "function",
    "function": {
        "name": "list_rooms",
        "description": "All rooms with seats, equipment and access, and when each is booked on a day.",
        "parameters": {
            "type": "object",
            "properties": {"date": {"type": "string", "description": "The day, as 2026-03-02."}},
            "required": ["date"],
        },
    },
}
_ANSWER = re.compile(r"^\W*ROOM:\s*(\w+)", re.MULTILINE)

# The rollouts of an event loop share a client: making one loads certificates, which takes longer than a rollout.
clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncOpenAI] = WeakKeyDictionary()


def _client(base_url: str, api_key: str) -> AsyncOpenAI:
    loop = asyncio.get_running_loop()
    if loop not in clients:
        clients[loop] = AsyncOpenAI(base_url="http://unset", api_key="none", max_retries=1, timeout=120)
    return clients[loop].with_options(base_url=base_url, api_key=api_key)


@agl.rollout
async def booking_agent(
    task: dict[str, Any], llm: agl.LLM, prompt_template: agl.PromptTemplate, *, max_turns: int = 4
) -> float:
    """1.0 when the last ``ROOM:`` line of the answer names the right room, else 0.0. A failing model call raises."""
    client = _client(llm.base_url, llm.api_key)
    prompt = prompt_template.format(request=task["request"])
    messages: list[Any] = [{"role": "user", "content": prompt}]
    text = ""
    for _ in range(max_turns):
        answer = await client.chat.completions.create(
            model=llm.model, messages=messages, tools=[TOOL], **llm.sampling
        )
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        text = message.content or ""
        if not message.tool_calls:
            break
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": _result(call)} for call in message.tool_calls
        ]
    found = _ANSWER.findall(text)
    right, given = task["answer"], found[-1] if found else None
    said = "has no line ROOM: with the room's name, or none" if given is None else f"says {given}"
    agl.emit_message(f"the answer {said}; right is {right}")
    return float(given is not None and given.lower() == right.lower())


def _result(call: Any) -> str:
    """What the model is told about a tool call; mistakes of its own are told to it as well."""
    if call.function.name != TOOL["function"]["name"]:
        return f"error: there is no tool {call.function.name!r}"
    try:
        date = json.loads(call.function.arguments)["date"]
    except (ValueError, LookupError, TypeError):
        return 'error: give arguments like {"date": "2026-03-02"}'
    return list_rooms(str(date))
