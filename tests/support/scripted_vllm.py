"""A model server that speaks OpenAI's chat completions with vLLM's exact ids; what it answers follows from the request.

It samples two bytes of text a token, so that tokens end inside characters, and writes its streams in pieces of a
given size, so that these end anywhere: inside characters, inside tool arguments, inside the framing.

What the last message says chooses the answer: ``fail`` is refused, ``break`` fails half-way, ``wait`` never goes on;
with tools, ``both`` calls two of them; a structured output is JSON; all else is text.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson
from served_asgi import serving_asgi

END = 2
TEXT = "Grüße — 你好, naïve 🦊!"
CITIES = ("Zürich 🏔", "São Paulo “sul” \\ \n")
REFUSAL = {
    "message": "the prompt is too long: 9000 tokens",
    "type": "BadRequestError",
    "param": None,
    "code": 400,
}
BREAKDOWN = {"message": "the engine died", "type": "InternalServerError", "param": None, "code": 500}

Json = dict[str, Any]
Steps = list[tuple[int, Json]]


@dataclass(slots=True)
class Script:
    """What one choice says, token by token: the ids and what each adds to the message."""

    message: Json
    finish_reason: str
    steps: Steps


class ScriptedVllm:
    """The server's application.

    Args:
        piece_bytes: of each piece in which a stream is written; None writes an event at a time.
    """

    def __init__(self, *, piece_bytes: int | None = 7) -> None:
        self.piece_bytes = piece_bytes
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.requests: list[Json] = []
        self.headers: list[dict[bytes, bytes]] = []
        self.asked = asyncio.Event()
        self.half_said = asyncio.Event()
        self.left = asyncio.Event()
        """The client of a call that waits closed its connection."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if scope["path"] != "/v1/chat/completions":
            await _send(send, 404, {"error": {"message": "not here", "code": 404}})
            return
        asked = orjson.loads(body)
        self.requests.append(asked)
        self.headers.append(dict(scope["headers"]))
        self.asked.set()
        wish = last_text(asked)
        if wish.startswith("fail"):
            await _send(send, 400, {"error": REFUSAL})
        elif asked.get("stream"):
            await self._stream(asked, wish, receive, send)
        elif wish.startswith("wait"):
            await self._wait(receive)
        elif wish.startswith("break"):
            await _send(send, 500, {"error": BREAKDOWN})
        else:
            await _send(send, 200, answer_of(asked))

    async def _stream(self, asked: Json, wish: str, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        chunks = list(chunks_of(asked))
        if wish.startswith(("wait", "break")):
            chunks = chunks[: len(chunks) // 2]
        await self._write(b"".join(map(_event, chunks)), send)
        if wish.startswith("wait"):
            self.half_said.set()
            await self._wait(receive)
            return
        if wish.startswith("break"):
            await self._write(_event({"error": BREAKDOWN}), send)
        await self._write(b"data: [DONE]\n\n", send)
        await send({"type": "http.response.body", "body": b""})

    async def _write(self, data: bytes, send: Any) -> None:
        size = self.piece_bytes or len(data)
        for start in range(0, len(data), size):
            await send({"type": "http.response.body", "body": data[start : start + size], "more_body": True})

    async def _wait(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()


@asynccontextmanager
async def scripted_vllm(*, piece_bytes: int | None = 7) -> AsyncGenerator[tuple[ScriptedVllm, str]]:
    """Serve on a free port; yields the server and its base URL."""
    server = ScriptedVllm(piece_bytes=piece_bytes)
    async with serving_asgi(server) as url:
        yield server, f"{url}/v1"


def answer_of(asked: Mapping[str, Any]) -> Json:
    """The whole answer to a request."""
    prompt, scripts = prompt_ids(asked), _scripts(asked)
    choices = [
        {
            "index": index,
            "message": script.message,
            "finish_reason": script.finish_reason,
            "stop_reason": None,
            "token_ids": [token for token, _ in script.steps],
            "logprobs": {"content": [entry_of(token) for token, _ in script.steps]},
        }
        for index, script in enumerate(scripts)
    ]
    return {
        **_head(asked, "chat.completion"),
        "choices": choices,
        "usage": usage_of(prompt, scripts),
        "prompt_token_ids": prompt,
    }


def chunks_of(asked: Mapping[str, Any]) -> Iterator[Json]:
    """The same answer as a stream: a chunk a token, the choices in turn, then the usage."""
    prompt, scripts = prompt_ids(asked), _scripts(asked)
    head = _head(asked, "chat.completion.chunk")
    for index in range(len(scripts)):
        role = {"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        first = {"prompt_token_ids": prompt} if index == 0 else {}
        yield {**head, **first, "choices": [{**role, "logprobs": None, "token_ids": None}]}
    for row in itertools.zip_longest(*(script.steps for script in scripts)):
        for index, step in enumerate(row):
            if step is not None:
                yield {**head, "choices": [_choice(index, scripts[index], *step)]}
    yield {**head, "choices": [], "usage": usage_of(prompt, scripts)}


def prompt_ids(asked: Mapping[str, Any]) -> list[int]:
    """The ids of a prompt: three bytes of what is said of it a token."""
    said = orjson.dumps([asked.get("messages"), asked.get("tools")])
    return [int.from_bytes(said[start : start + 3]) for start in range(0, len(said), 3)]


def entry_of(token: int) -> Json:
    """A sampled token with its logprob, which float32 holds exactly."""
    piece = _bytes_of(token)
    logprob = -(token * 37 % 1000) / 256
    return {
        "token": piece.decode("utf-8", "replace"),
        "logprob": logprob,
        "bytes": list(piece),
        "top_logprobs": [],
    }


def usage_of(prompt: list[int], scripts: list[Script]) -> Json:
    """The tokens of a prompt and of what was said to it."""
    sampled = sum(len(script.steps) for script in scripts)
    return {
        "prompt_tokens": len(prompt),
        "completion_tokens": sampled,
        "total_tokens": len(prompt) + sampled,
        "prompt_tokens_details": None,
    }


def last_text(asked: Mapping[str, Any]) -> str:
    """The text of the last message."""
    content = asked["messages"][-1].get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def text_of_choice(index: int) -> str:
    """What the choice of this index says when nothing else is asked for."""
    return f"{TEXT} {index}"


def _scripts(asked: Mapping[str, Any]) -> list[Script]:
    return [_script(asked, index) for index in range(asked.get("n") or 1)]


def _script(asked: Mapping[str, Any], index: int) -> Script:
    last = asked["messages"][-1]
    if last["role"] == "tool":
        said = [message["content"] for message in asked["messages"] if message["role"] == "tool"]
        return _text_script("tools said: " + " and ".join(map(_plain, said)))
    if asked.get("tools"):
        return _tool_script(asked, CITIES if "both" in last_text(asked) else CITIES[:1])
    if (asked.get("response_format") or {}).get("type") == "json_schema":
        return _text_script(orjson.dumps({"city": CITIES[index % 2], "degrees": 7}).decode())
    return _text_script(text_of_choice(index))


def _plain(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _text_script(text: str) -> Script:
    message = {"role": "assistant", "content": text, "refusal": None, "tool_calls": []}
    steps: Steps = [(token, {"content": piece}) for token, piece in _tokens(text)]
    return Script(message, "stop", [*steps, (END, {"content": ""})])


def _tool_script(asked: Mapping[str, Any], cities: tuple[str, ...]) -> Script:
    steps: Steps = []
    calls: list[Json] = []
    name = asked["tools"][0]["function"]["name"]
    for index, city in enumerate(cities):
        arguments = orjson.dumps({"city": city}).decode()
        call = {"id": f"call_{_hash(asked)[:8]}{index}", "type": "function"}
        calls.append({**call, "function": {"name": name, "arguments": arguments}})
        begun = {"index": index, **call, "function": {"name": name, "arguments": ""}}
        steps.append((1000 + index, {"tool_calls": [begun]}))
        for token, piece in _tokens(arguments):
            delta = {"tool_calls": [{"index": index, "function": {"arguments": piece}}]} if piece else {}
            steps.append((token, delta))
    message = {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}
    return Script(message, "tool_calls", [*steps, (END, {})])


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    """Two bytes a token; the text of each is what has become whole with it."""
    data, shown = text.encode(), 0
    for start in range(0, len(data), 2):
        whole = data[: start + 2].decode("utf-8", "ignore")
        yield 0x10000 + int.from_bytes(data[start : start + 2]), whole[shown:]
        shown = len(whole)


def _bytes_of(token: int) -> bytes:
    return b"" if token < 0x10000 else (token - 0x10000).to_bytes(2).lstrip(b"\0")


def _choice(index: int, script: Script, token: int, delta: Json) -> Json:
    return {
        "index": index,
        "delta": delta,
        "logprobs": {"content": [entry_of(token)]},
        "finish_reason": script.finish_reason if token == END else None,
        "stop_reason": None,
        "token_ids": [token],
    }


def _head(asked: Mapping[str, Any], kind: str) -> Json:
    return {"id": f"chatcmpl-{_hash(asked)}", "object": kind, "created": 1764500000, "model": asked["model"]}


def _hash(asked: Mapping[str, Any]) -> str:
    """Of what is asked, streamed or not."""
    said = {name: value for name, value in asked.items() if name not in ("stream", "stream_options")}
    return blake2b(orjson.dumps(said, option=orjson.OPT_SORT_KEYS), digest_size=12).hexdigest()


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


async def _send(send: Any, status: int, body: Mapping[str, Any]) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": orjson.dumps(body)})
