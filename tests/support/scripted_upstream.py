"""A server that knows chat completions, as a process: ``python scripted_upstream.py`` says its URL and serves.

The n-th call is answered with ``{last message} n``, streamed a word at a time. The message ``wait`` is not answered.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NUMBERS = itertools.count(1)
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        self.answer({"object": "list", "data": [{"id": "m", "object": "model"}]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = request["messages"][-1]["content"]
        number = next(NUMBERS)
        shared = {"id": f"chatcmpl-{number}", "created": 1, "model": request["model"]}
        if said == "wait":
            tell(said)
            threading.Event().wait()
        if request.get("stream"):
            self.stream([shared | piece for piece in pieces(f"{said} {number}".split())])
            return
        message = {"role": "assistant", "content": f"{said} {number}"}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        self.answer(shared | {"object": "chat.completion", "choices": [choice], "usage": USAGE})

    def answer(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, chunks: list[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")


def pieces(words: list[str]) -> list[dict[str, Any]]:
    deltas = [
        {"role": "assistant"},
        *({"content": word if i == 0 else f" {word}"} for i, word in enumerate(words)),
        {},
    ]
    made = [
        {"index": 0, "delta": delta, "finish_reason": None if delta else "stop", "logprobs": None}
        for delta in deltas
    ]
    chunks = [{"object": "chat.completion.chunk", "choices": [piece]} for piece in made]
    return [*chunks, {"object": "chat.completion.chunk", "choices": [], "usage": USAGE}]


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    tell(f"http://127.0.0.1:{server.server_address[1]}/v1")
    server.serve_forever()
