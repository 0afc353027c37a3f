"""The external engine's streams over real HTTP: as they come, given up at once, connections used again."""

import asyncio
import contextlib
from contextlib import aclosing, asynccontextmanager

import orjson
import pytest
import uvicorn

from agl.errors import InferenceError
from agl.inference.external import ExternalEngine
from agl.types.sse import DONE, encode

CHAT = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}


class ModelServer:
    """Streams a chunk whenever ``tick`` is given one, until None; knows the clients' ports and who has left."""

    def __init__(self):
        self.tick = asyncio.Queue()
        self.ports = []
        self.left = asyncio.Event()

    async def __call__(self, scope, receive, send):
        assert scope["type"] == "http"
        self.ports.append(scope["client"][1])
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        watch = asyncio.create_task(self._watch(receive))
        try:
            while (number := await self.tick.get()) is not None:
                await self._send(send, orjson.dumps({"choices": [{"index": 0}], "number": number}))
            await self._send(send, DONE)
            await send({"type": "http.response.body", "body": b""})
        finally:
            watch.cancel()

    async def _watch(self, receive):
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()

    async def _send(self, send, data):
        await send({"type": "http.response.body", "body": encode(None, data), "more_body": True})


@pytest.fixture
async def server():
    app = ModelServer()
    async with served(app) as url:
        app.url = url
        yield app


@asynccontextmanager
async def served(app):
    config = uvicorn.Config(
        app, port=0, lifespan="off", log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext
    with contextlib.closing(config.bind_socket()) as listener:
        task = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        server.should_exit = True
        await task


async def test_a_chunk_is_there_before_the_server_has_sampled_the_next(server):
    async with ExternalEngine(server.url, "policy") as engine, aclosing(engine.stream_chat(CHAT)) as stream:
        for number in range(3):
            server.tick.put_nowait(number)
            assert (await anext(stream))["number"] == number
        server.tick.put_nowait(None)
        assert [chunk async for chunk in stream] == []


async def test_a_closed_stream_is_given_up_at_the_server_within_a_second(server):
    async with ExternalEngine(server.url, "policy") as engine:
        stream = engine.stream_chat(CHAT)
        server.tick.put_nowait(1)
        await anext(stream)
        await stream.aclose()
        async with asyncio.timeout(1):
            await server.left.wait()


async def test_a_cancelled_reader_gives_its_call_up_within_a_second(server):
    async with ExternalEngine(server.url, "policy") as engine:
        stream = engine.stream_chat(CHAT)
        server.tick.put_nowait(1)
        await anext(stream)
        reader = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        async with asyncio.timeout(1):
            await server.left.wait()


async def test_a_connection_is_used_again_after_a_stream(server):
    async with ExternalEngine(server.url, "policy") as engine:
        for _ in range(5):
            for number in (1, 2, None):
                server.tick.put_nowait(number)
            assert [chunk["number"] async for chunk in engine.stream_chat(CHAT)] == [1, 2]
    assert len(set(server.ports)) == 1


async def test_a_server_that_dies_in_mid_stream_fails_the_call():
    async def half(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        event = encode(None, b'{"choices": []}')
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head + b"%x\r\n%s\r\n" % (len(event), event))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(half, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        async with ExternalEngine(f"http://127.0.0.1:{port}/v1", "policy") as engine:
            stream = engine.stream_chat(CHAT)
            assert await anext(stream) == {"choices": []}
            with pytest.raises(InferenceError, match="broke off") as caught:
                await anext(stream)
    assert caught.value.status == 502
