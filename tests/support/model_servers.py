"""Model servers that misbehave, and model servers that are processes and can be killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from scripted_vllm import ScriptedVllm, answer_of
from served_asgi import serving_asgi

SCRIPT = Path(__file__).resolve()


class MoodyServer:
    """Does ``moods`` to one request after the other, then answers as the scripted server does.

    A mood is a status, or (status, headers), or one of: ``cut`` closes in the middle of an answer, ``garbage`` is not
    JSON, ``stuck`` never answers, ``echo`` refuses and repeats the API key, ``redirect`` points elsewhere, ``no_ids``
    refuses requests that ask for token ids, ``without_ids`` answers without them.
    """

    def __init__(self) -> None:
        self.moods: list[Any] = []
        self.scripted = ScriptedVllm(piece_bytes=None)
        self.num_requests = 0
        self.is_down = False
        """Whether every request is answered with 503."""
        self.asked: list[dict[str, Any]] = []
        """What was answered without ids."""
        self.left = asyncio.Event()
        self.headers: list[dict[bytes, bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["path"].endswith("/models"):
            await _answer(send, 503 if self.is_down else 200, {"data": []})
            return
        self.num_requests += 1
        self.headers.append(dict(scope["headers"]))
        mood = self._mood()
        if mood is None:
            await self.scripted(scope, receive, send)
        elif isinstance(mood, int | tuple):
            status, headers = mood if isinstance(mood, tuple) else (mood, {})
            await _answer(send, status, {"error": {"message": "moody", "code": status}}, **headers)
        else:
            await getattr(self, f"_{mood}")(scope, receive, send)

    def _mood(self) -> Any:
        if self.is_down:
            return 503
        return self.moods.pop(0) if self.moods else None

    async def _cut(self, scope: Any, receive: Any, send: Any) -> None:
        await _head(send, 200, ("content-length", "1000"))
        await send({"type": "http.response.body", "body": b'{"choices": [', "more_body": True})
        raise ConnectionResetError("the server closes in the middle of an answer")

    async def _garbage(self, scope: Any, receive: Any, send: Any) -> None:
        await _head(send, 200)
        await send({"type": "http.response.body", "body": b"<html>\xff\xfe"})

    async def _stuck(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()

    async def _echo(self, scope: Any, receive: Any, send: Any) -> None:
        key = dict(scope["headers"]).get(b"authorization", b"").decode()
        await _answer(send, 401, {"error": {"message": f"wrong key: {key}", "code": "invalid_api_key"}})

    async def _redirect(self, scope: Any, receive: Any, send: Any) -> None:
        await _answer(send, 307, {}, location="/v1/elsewhere")

    async def _no_ids(self, scope: Any, receive: Any, send: Any) -> None:
        message = "Unrecognized request argument supplied: return_token_ids"
        await _answer(send, 400, {"error": {"message": message, "type": "invalid_request_error"}})

    async def _without_ids(self, scope: Any, receive: Any, send: Any) -> None:
        asked = orjson.loads((await receive())["body"])
        self.asked.append(asked)
        answer = answer_of(asked)
        del answer["prompt_token_ids"]
        for choice in answer["choices"]:
            del choice["token_ids"]
        await _answer(send, 200, answer)


@asynccontextmanager
async def moody_server() -> AsyncGenerator[tuple[MoodyServer, str]]:
    """Serve on a free port; yields the server and its base URL."""
    server = MoodyServer()
    async with serving_asgi(server) as url:
        yield server, f"{url}/v1"


class ModelProcess:
    """A scripted model server in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process, self.url = process, url

    def kill(self) -> None:
        """End it without a word."""
        self.process.send_signal(signal.SIGKILL)


@asynccontextmanager
async def model_process(*, seconds_per_call: float = 0.0) -> AsyncGenerator[ModelProcess]:
    """Start a process that serves; it ends with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), str(seconds_per_call), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        yield ModelProcess(process, f"{url}/v1")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _be_a_model_server(seconds_per_call: float) -> None:
    scripted = ScriptedVllm(piece_bytes=None)

    async def thinking(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(seconds_per_call)
        await scripted(scope, receive, send)

    async with serving_asgi(thinking) as url:
        print(url, flush=True)  # noqa: T201 - tells the parent where it is
        await asyncio.Event().wait()


async def _head(send: Any, status: int, *headers: tuple[str, str]) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": raw})


async def _answer(send: Any, status: int, body: Any, **headers: str) -> None:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    await _head(send, status, ("content-type", "application/json"), *named)
    await send({"type": "http.response.body", "body": orjson.dumps(body)})


if __name__ == "__main__":
    asyncio.run(_be_a_model_server(float(sys.argv[1])))
