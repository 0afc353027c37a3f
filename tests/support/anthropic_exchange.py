"""Anthropic's own SDK as the judge of what the dialect words: its clients and types, without sockets."""

from collections.abc import Iterable, Mapping
from typing import Any

import anthropic
import httpx2
import orjson
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from agl.proxy.dialects.anthropic_messages import AnthropicMessages
from agl.proxy.dialects.base import ClientRequest

DIALECT = AnthropicMessages()
HELLO: dict[str, Any] = {
    "model": "policy",
    "max_tokens": 64,
    "messages": [{"role": "user", "content": "hello"}],
}
WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
PNG = "iVBORw0KGgo="
_EVENTS: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def read(**fields: Any) -> ClientRequest:
    """The dialect's reading of ``HELLO`` with these fields."""
    return DIALECT.request(orjson.dumps({**HELLO, **fields}))


def chat_answer(message: Mapping[str, Any], **choice: Any) -> dict[str, Any]:
    """A canonical answer; ``choice`` are further fields of its only choice."""
    said = {"role": "assistant", "content": None, **message}
    return {
        "id": "chatcmpl-7",
        "object": "chat.completion",
        "created": 1,
        "model": "policy-1",
        "choices": [{"index": 0, "message": said, "finish_reason": "stop", **choice}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
    }


def call(name: str, arguments: str, call_id: str | None = "call_1") -> dict[str, Any]:
    """A tool call of a canonical message."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chunk(delta: Mapping[str, Any] | None, **fields: Any) -> dict[str, Any]:
    """A canonical chunk; None is the last one, without choices."""
    finish = fields.pop("finish_reason", None)
    choices = [] if delta is None else [{"index": 0, "delta": dict(delta), "finish_reason": finish}]
    head = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1, "model": "policy-1"}
    return {**head, "choices": choices, **fields}


def chunks_of(answer: Mapping[str, Any], cut: Any) -> list[dict[str, Any]]:
    """The stream of an answer; ``cut(text)`` says in which pieces a text comes."""
    choice = answer["choices"][0]
    said = choice["message"]
    chunks = [chunk({"role": "assistant", "content": ""})]
    for name in ("reasoning_content", "content", "refusal"):
        chunks += [chunk({name: piece}) for piece in cut(said.get(name) or "")]
    for index, told in enumerate(said.get("tool_calls") or ()):
        function = told["function"]
        head = {"index": index, **told, "function": {"name": function["name"], "arguments": ""}}
        chunks.append(chunk({"tool_calls": [head]}))
        for piece in cut(function["arguments"]):
            chunks.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
    chunks.append(chunk({}, finish_reason=choice["finish_reason"]))
    return [*chunks, chunk(None, usage=answer["usage"])]


def streamed(request: ClientRequest, chunks: Iterable[Mapping[str, Any]], answer: Mapping[str, Any]) -> bytes:
    """The whole event stream of an answer."""
    writer = DIALECT.events(request)
    return b"".join(writer.chunk(each) for each in chunks) + writer.end(answer)


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """The events of a stream, each valid by the SDK's types and under its own name; pings left out."""
    events: list[dict[str, Any]] = []
    for block in stream.split(b"\n\n")[:-1]:
        name, data = block.split(b"\n")
        event = orjson.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        if event["type"] != "ping":
            _EVENTS.validate_python(event)
            events.append(event)
    return events


def valid(message: bytes) -> dict[str, Any]:
    """A plain answer, valid by the SDK's types."""
    parsed = orjson.loads(message)
    Message.model_validate(parsed)
    return parsed


def client_of(content: bytes, *, status: int = 200, stream: bool = False) -> anthropic.Anthropic:
    """The SDK's client of a server that always answers this."""
    http = httpx2.Client(transport=_transport(content, status=status, stream=stream))
    return anthropic.Anthropic(base_url="http://proxy", api_key="k", http_client=http, max_retries=0)


def async_client_of(content: bytes, *, status: int = 200, stream: bool = False) -> anthropic.AsyncAnthropic:
    """The SDK's async client of a server that always answers this."""
    http = httpx2.AsyncClient(transport=_transport(content, status=status, stream=stream))
    return anthropic.AsyncAnthropic(base_url="http://proxy", api_key="k", http_client=http, max_retries=0)


def final_message(stream: bytes) -> dict[str, Any]:
    """What the SDK puts together from an event stream."""
    with client_of(stream, stream=True).messages.stream(**HELLO) as events:
        message = events.get_final_message()
    return message.to_dict(mode="json")


def _transport(content: bytes, *, status: int, stream: bool) -> httpx2.MockTransport:
    kind = "text/event-stream" if stream else "application/json"
    return httpx2.MockTransport(
        lambda _: httpx2.Response(status, headers={"content-type": kind}, content=content)
    )
