"""Streams of ``ExternalEngine``, over a network in memory."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import orjson
import pytest
from model_network import CUT, SILENT, ModelNetwork, Pieces

from agl.errors import InferenceError
from agl.inference.external import ExternalEngine

VLLM = Path(__file__).parents[2] / "data" / "vllm"
CHAT = {"model": "gpt", "messages": [{"role": "user", "content": "hello"}], "logprobs": True}
CHUNKS = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": [1, 2]},
    {"choices": [{"index": 0, "delta": {"content": "€ 5"}, "token_ids": [7], "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 1}},
]


def events(*chunks: Any, end: bytes = b"data: [DONE]\r\n\r\n") -> bytes:
    """A server's stream, with comments and line ends as some send them."""
    lines = b"".join(b"data: " + orjson.dumps(chunk) + b"\r\n\r\n" for chunk in chunks)
    return b": ping\r\n\r\n" + lines + end


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> ModelNetwork:
    network = ModelNetwork([Pieces((events(*CHUNKS),))])
    network.install(monkeypatch)
    return network


def engine_of(**settings: Any) -> ExternalEngine:
    return ExternalEngine("http://model.test/v1", "gpt", **settings)


async def read(request: dict[str, Any] | None = None, **settings: Any) -> list[dict[str, Any]]:
    async with engine_of(**settings) as engine:
        return [chunk async for chunk in engine.stream_chat(request or CHAT)]


async def read_until_it_fails(**settings: Any) -> tuple[list[dict[str, Any]], InferenceError]:
    chunks: list[dict[str, Any]] = []
    try:
        async with engine_of(**settings) as engine:
            async for chunk in engine.stream_chat(CHAT):
                chunks.append(chunk)  # noqa: PERF401 - what came before the failure counts
    except InferenceError as error:
        return chunks, error
    raise AssertionError("it did not fail")


async def test_the_servers_chunks_come_as_it_sent_them(network: ModelNetwork):
    assert await read() == CHUNKS
    (asked,) = network.bodies
    assert asked == CHAT | {"stream": True, "stream_options": {"include_usage": True}}


async def test_chunks_may_be_cut_anywhere(network: ModelNetwork):
    stream = events(*CHUNKS)
    network.answers = [Pieces(tuple(stream[place : place + 1] for place in range(len(stream))))]
    assert await read() == CHUNKS


async def test_each_chunk_is_given_before_the_next_is_read(network: ModelNetwork):
    body = Pieces((*(events(chunk, end=b"") for chunk in CHUNKS), b"data: [DONE]\n\n"), step=asyncio.Event())
    network.answers = [body]
    async with engine_of() as engine, aclosing(engine.stream_chat(CHAT)) as stream:
        for place, chunk in enumerate(CHUNKS, 1):
            assert body.step is not None
            body.step.set()
            assert (await anext(stream), body.num_sent) == (chunk, place)


async def test_closing_a_stream_closes_the_connection(network: ModelNetwork):
    network.answers = [Pieces((*(events(chunk, end=b"") for chunk in CHUNKS), SILENT))]
    async with engine_of(max_connections=1) as engine:
        async with aclosing(engine.stream_chat(CHAT)) as stream:
            await anext(stream)
        assert network.num_closed == 1
        network.answers = [Pieces((events(*CHUNKS),))]
        assert len([chunk async for chunk in engine.stream_chat(CHAT)]) == 3


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ([], "ended its stream before the end"),
        ([b'data: {"choices": [], "us'], "ended its stream before the end"),
        ([CUT], "cannot be reached or broke off: the connection broke"),
        ([b"data: {oops}\n\n"], "streamed something else than JSON objects"),
        ([b"data: [1]\n\n"], "streamed something else than JSON objects"),
    ],
)
async def test_a_stream_that_breaks_fails_after_what_came(network: ModelNetwork, end: list[Any], told: str):
    network.answers = [Pieces((events(CHUNKS[0], end=b""), *end))]
    chunks, error = await read_until_it_fails()
    assert chunks == CHUNKS[:1]
    assert error.status == 502
    assert f"http://model.test/v1 {told}" in str(error)


async def test_a_server_that_falls_silent_is_a_504(network: ModelNetwork):
    network.answers = [Pieces((events(CHUNKS[0], end=b""), SILENT))]
    chunks, error = await read_until_it_fails(timeout_seconds=0.05)
    assert (len(chunks), error.status) == (1, 504)


async def test_a_line_without_end_is_refused(network: ModelNetwork):
    body = Pieces((b"x" * 2**20,) * 70)
    network.answers = [body]
    chunks, error = await read_until_it_fails()
    assert (chunks, error.status) == ([], 502)
    assert "longer than" in str(error)
    assert body.num_sent < 70


@pytest.mark.parametrize(
    ("code", "status"), [(400, 400), (503, 503), ("overloaded", 502), (7, 502), (None, 502)]
)
async def test_a_failure_told_in_the_stream_fails_the_call(network: ModelNetwork, code: object, status: int):
    told = {"error": {"message": "no memory", "type": "InternalServerError", "code": code}}
    network.answers = [Pieces((events(CHUNKS[0], told, end=b""),))]
    chunks, error = await read_until_it_fails()
    assert (len(chunks), error.status, error.body) == (1, status, told)


async def test_a_key_told_in_the_stream_is_masked(network: ModelNetwork, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MODEL_KEY", "sk-secret-0123456789")
    told = {"error": {"message": "wrong key sk-secret-0123456789"}}
    network.answers = [Pieces((events(told, end=b""),))]
    with pytest.raises(InferenceError) as caught:
        await read(api_key_env="MODEL_KEY")
    assert caught.value.body == {"error": {"message": "wrong key ***"}}
    assert "secret" not in str(caught.value)


async def test_the_servers_refusal_comes_from_the_first_chunk(network: ModelNetwork):
    body = {"error": {"message": "slow down", "code": "rate_limit"}}
    network.answers = [Pieces((orjson.dumps(body),), status=429)]
    async with engine_of() as engine:
        with pytest.raises(InferenceError, match="HTTP 429") as caught:
            await anext(engine.stream_chat(CHAT))
    assert (caught.value.status, caught.value.body) == (429, body)


async def test_a_stream_outside_its_block_is_refused():
    with pytest.raises(InferenceError, match="not open"):
        await anext(engine_of().stream_chat(CHAT))


@pytest.mark.parametrize(
    "name", ["chat", "chat_n2", "chat_stop", "chat_tools_auto", "chat_tool_required", "chat_schema"]
)
async def test_vllms_recorded_stream_has_the_ids_of_its_plain_answer(network: ModelNetwork, name: str):
    plain, stream = (orjson.loads((VLLM / f"{name}{kind}.json").read_bytes()) for kind in ("", "_stream"))
    network.answers = [Pieces((stream["events"].encode(),))]
    chunks = await read(stream["request"]["body"], ask_for_token_ids=True)
    assert network.bodies == [stream["request"]["body"]]
    assert chunks[0]["prompt_token_ids"] == plain["body"]["prompt_token_ids"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"].items() <= plain["body"]["usage"].items()
    for choice in plain["body"]["choices"]:
        pieces = [
            piece for chunk in chunks for piece in chunk["choices"] if piece["index"] == choice["index"]
        ]
        token_ids = [token_id for piece in pieces for token_id in piece.get("token_ids", [])]
        assert token_ids == choice["token_ids"]
        entries = [entry for piece in pieces if piece["logprobs"] for entry in piece["logprobs"]["content"]]
        assert entries == choice["logprobs"]["content"]
        text = "".join(piece["delta"].get("content") or "" for piece in pieces)
        assert text == (choice["message"]["content"] or "")
        assert pieces[-1]["finish_reason"] == choice["finish_reason"]
