"""Both ends of the Responses dialect: canonical answers in any pieces, and OpenAI's own client on the other side."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import httpx
import orjson
from hypothesis import strategies as st
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from agl.proxy.dialects.openai_responses import OpenAIResponses

HELLO = {"model": "policy", "input": "hello"}
USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}

_ODD: list[Any] = [
    None,
    True,
    0,
    -1.5,
    "",
    "x",
    [],
    {},
    [1],
    ["x"],
    [{}],
    [[]],
    [None],
    {"x": 1},
    {"type": "message"},
]

_RESPONSE = TypeAdapter(Response)
_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def function_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return a tool call of a chat completion."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def canonical(
    message: Mapping[str, Any], *, finish_reason: str = "stop", logprobs: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return a whole canonical answer."""
    silence = None if message.get("tool_calls") or message.get("refusal") else ""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": silence, **message},
        "logprobs": {"content": list(logprobs)} if logprobs else None,
        "finish_reason": finish_reason,
    }
    head = {"id": "chatcmpl-7", "object": "chat.completion", "created": 1764500000, "model": "policy"}
    return {**head, "choices": [choice], "usage": USAGE}


def chunked(answer: Mapping[str, Any], deltas: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the canonical chunks of a stream: the role, the deltas (with ``logprobs`` beside), the end, the usage."""
    head = {"id": answer["id"], "object": "chat.completion.chunk"}
    head |= {"created": answer["created"], "model": answer["model"]}

    def chunk(delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        said = {name: value for name, value in delta.items() if name != "logprobs"}
        logprobs = {"content": delta["logprobs"]} if delta.get("logprobs") else None
        choice = {"index": 0, "delta": said, "logprobs": logprobs, "finish_reason": finish_reason}
        return {**head, "choices": [choice]}

    first = {**chunk({"role": "assistant", "content": ""}), "prompt_token_ids": [1, 2]}
    last = chunk({}, answer["choices"][0]["finish_reason"])
    return [first, *map(chunk, deltas), last, {**head, "choices": [], "usage": answer["usage"]}]


def assembled(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the message, the logprobs, the finish reason and the usage that canonical chunks add up to."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: dict[int, dict[str, Any]] = {}
    whole: dict[str, Any] = {"finish_reason": None, "usage": None, "logprobs": []}
    for chunk in chunks:
        whole["usage"] = chunk.get("usage") or whole["usage"]
        for choice in chunk["choices"]:
            whole["finish_reason"] = choice["finish_reason"] or whole["finish_reason"]
            whole["logprobs"] += (choice.get("logprobs") or {}).get("content") or []
            for name in ("content", "refusal", "reasoning_content"):
                if choice["delta"].get(name):
                    message[name] = (message.get(name) or "") + choice["delta"][name]
            for call in choice["delta"].get("tool_calls") or []:
                kind = "custom" if "custom" in call else "function"
                known = calls.setdefault(
                    call["index"], {"id": call.get("id"), "type": call.get("type"), kind: {}}
                )
                for name, text in call[kind].items():
                    known[kind][name] = known[kind].get(name, "") + text
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return {**whole, "message": message}


def events_in(data: bytes) -> list[dict[str, Any]]:
    """Return the data of server-sent events, each of which must carry its type as its name."""
    events: list[dict[str, Any]] = []
    for block in data.decode().split("\n\n")[:-1]:
        name, _, text = block.partition("\n")
        event = json.loads(text.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def checked_response(response: Mapping[str, Any]) -> Response:
    """Return the Response after OpenAI's own types took it, nothing coerced."""
    return _RESPONSE.validate_python(response, strict=True)


def checked_events(data: bytes) -> list[dict[str, Any]]:
    """Return events after OpenAI's own types took each of them, nothing coerced."""
    events = events_in(data)
    for event in events:
        taken = _EVENT.validate_python(event, strict=True)
        assert taken.type == event["type"]
    return events


def streamed(
    body: Mapping[str, Any], answer: Mapping[str, Any], chunks: Sequence[Mapping[str, Any]]
) -> bytes:
    """Return the whole event stream that a client gets."""
    dialect = OpenAIResponses()
    writer = dialect.events(dialect.request(orjson.dumps(body)))
    return b"".join([*map(writer.chunk, chunks), writer.end(answer)])


def spoiled(draw: Callable[[st.SearchStrategy[Any]], Any], value: Any) -> Any:
    """Return a copy of a JSON value with one node of another shape, or without one of its fields."""
    copied: Any = orjson.loads(orjson.dumps(value))
    places = list(_places(copied))
    holder, name = places[draw(st.integers(0, len(places) - 1))]
    if isinstance(holder, dict) and draw(st.booleans()):
        del holder[name]
    else:
        holder[name] = draw(st.sampled_from(_ODD))
    return copied


def _places(node: Any) -> Iterable[tuple[Any, Any]]:
    names = node.keys() if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for name in names:
        yield node, name
        yield from _places(node[name])


class ScriptedUpstream:
    """Answers each request of OpenAI's client with the next canonical answer, by way of the dialect."""

    def __init__(self, *answers: Mapping[str, Any], chunks: Sequence[Mapping[str, Any]] = ()) -> None:
        self._answers = list(answers)
        self._chunks = chunks
        self.chats: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        dialect = OpenAIResponses()
        read = dialect.request(request.content)
        self.chats.append(read.chat)
        answer = self._answers.pop(0)
        if not read.stream:
            return httpx.Response(200, content=dialect.answer(read, answer))
        writer = dialect.events(read)
        body = b"".join([*map(writer.chunk, self._chunks), writer.end(answer)])
        return httpx.Response(200, content=body, headers={"content-type": "text/event-stream"})

    def client(self) -> OpenAI:
        """Return OpenAI's client of this upstream."""
        http = httpx.Client(transport=httpx.MockTransport(self))
        return OpenAI(api_key="none", base_url="http://proxy/v1", http_client=http, max_retries=0)

    def async_client(self) -> AsyncOpenAI:
        """Return OpenAI's asynchronous client of this upstream."""
        http = httpx.AsyncClient(transport=httpx.MockTransport(self))
        return AsyncOpenAI(api_key="none", base_url="http://proxy/v1", http_client=http, max_retries=0)
