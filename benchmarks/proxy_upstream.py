"""A model server for benchmarks/proxy.py: speaks OpenAI's chat completions and answers at once, with vLLM's ids.

    python proxy_upstream.py [--chunk-seconds 0.05]

An answer has ``max_tokens`` tokens; a token is a word, and in a stream a chunk. Ids and logprobs are there where the
request asks for ``return_token_ids``; the prompt has a token for each 4 bytes of the request. Each streamed word is the
clock's nanoseconds when it was sent, so that the client can tell how long it was on its way. Prints its URL, and ends
with its input.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from functools import cache
from typing import Any

import httptools
import orjson

from agl.launch.event_loop import loop_factory

BYTES_A_TOKEN = 4
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LOGPROB = -0.5


@cache
def whole_answer(num_prompt: int, num_tokens: int, *, with_ids: bool) -> bytes:
    """Return the HTTP response with a chat completion."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": "word " * num_tokens},
        "finish_reason": "stop",
        "logprobs": None,
    }
    answer = _frame("chat.completion") | {"choices": [choice], "usage": usage(num_prompt, num_tokens)}
    if with_ids:
        choice["token_ids"] = list(range(num_tokens))
        choice["logprobs"] = {"content": [_logprob("word ") for _ in range(num_tokens)]}
        answer["prompt_token_ids"] = list(range(num_prompt))
    body = orjson.dumps(answer)
    return _JSON % (len(body), body)


@cache
def first_chunk(num_prompt: int, *, with_ids: bool) -> bytes:
    """Return the event that says the role, with the prompt's ids."""
    choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    ids = {"prompt_token_ids": list(range(num_prompt))} if with_ids else {}
    return _event(_frame("chat.completion.chunk") | {"choices": [choice]} | ids)


@cache
def word_chunk(*, with_ids: bool) -> tuple[bytes, bytes]:
    """Return what is before and behind a streamed word."""
    choice: dict[str, Any] = {"index": 0, "delta": {"content": "@"}, "finish_reason": None, "logprobs": None}
    if with_ids:
        choice["token_ids"] = [7]
        choice["logprobs"] = {"content": [_logprob("word ")]}
    data = orjson.dumps(_frame("chat.completion.chunk") | {"choices": [choice]})
    before, _, behind = data.partition(b"@")
    return b"data: " + before, behind + b"\n\n"


@cache
def last_chunks(num_prompt: int, num_tokens: int) -> bytes:
    """Return the events that end a stream, and the end of the response."""
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "logprobs": None}]}
    used = {"choices": [], "usage": usage(num_prompt, num_tokens)}
    frame = _frame("chat.completion.chunk")
    return _event(frame | end) + _event(frame | used) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def usage(num_prompt: int, num_tokens: int) -> dict[str, int]:
    """Return what an answer says of its tokens."""
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_tokens,
        "total_tokens": num_prompt + num_tokens,
    }


class ModelServer(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, chunk_seconds: float) -> None:
        self._chunk_seconds = chunk_seconds
        self._parser = httptools.HttpRequestParser(self)
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._body: list[bytes] = []
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """A part of a request has come."""
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        del exc
        self._transport = None

    def on_body(self, body: bytes) -> None:
        """A part of a request's body has come."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        body = b"".join(self._body)
        self._body.clear()
        if not body:  # a question after its health
            self._transport.write(_JSON % (2, b"{}"))
            return
        asked = orjson.loads(body)
        num_prompt, num_tokens = len(body) // BYTES_A_TOKEN, asked["max_tokens"]
        with_ids = bool(asked.get("return_token_ids"))
        if not asked.get("stream"):
            self._transport.write(whole_answer(num_prompt, num_tokens, with_ids=with_ids))
            return
        self._left = num_tokens
        self._transport.write(_EVENTS + first_chunk(num_prompt, with_ids=with_ids))
        self._say(word_chunk(with_ids=with_ids), last_chunks(num_prompt, num_tokens), self._loop.time())

    def _say(self, word: tuple[bytes, bytes], end: bytes, due: float) -> None:
        """Send the next word of a stream, and plan the one after it."""
        if self._transport is None:
            return
        before, behind = word
        self._transport.write(_chunk(b"%b%d %b" % (before, time.monotonic_ns(), behind)))
        self._left -= 1
        if self._left:
            due += self._chunk_seconds
            self._loop.call_at(due, self._say, word, end, due)
        else:
            self._transport.write(end)


def _frame(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-0", "object": kind, "created": 1, "model": "policy"}


def _logprob(token: str) -> dict[str, Any]:
    return {"token": token, "logprob": _LOGPROB, "bytes": list(token.encode()), "top_logprobs": []}


def _event(data: dict[str, Any]) -> bytes:
    return _chunk(b"data: " + orjson.dumps(data) + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(chunk_seconds: float) -> None:
    """Serve until the input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ModelServer(chunk_seconds), "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunk-seconds", type=float, default=0.05, help="between two words of a stream")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(options.chunk_seconds))


if __name__ == "__main__":
    main()
