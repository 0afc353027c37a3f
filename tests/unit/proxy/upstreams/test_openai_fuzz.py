"""Whatever a model server streams, the outcome is its whole stream or an error of the server's."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from agl.proxy.upstream import CallContext
from agl.proxy.upstreams.base import UpstreamError
from agl.proxy.upstreams.http import HttpServer
from agl.proxy.upstreams.openai import OpenAIServer
from agl.types.sse import Event, SseDecoder

CHAT = {"model": "m", "messages": []}
CHUNKS = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"index": 0, "delta": {"content": "Gr\u00fc\u00dfe \U0001f98a"}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"total_tokens": 3}},
]
WHOLE = b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in CHUNKS) + b"data: [DONE]\n\n"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "index", "delta", "error", "code", "finish_reason", "usage"]), inner
        )
    ),
    max_leaves=8,
)


class CannedServer(HttpServer):
    """Streams the bytes that it is given, in pieces."""

    def __init__(self, data: bytes, *, cuts: list[int]) -> None:
        super().__init__("http://model.test/v1", headers={}, key=None, timeout_seconds=1, connect_seconds=1)
        places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
        self.pieces = [data[start:end] for start, end in itertools.pairwise(places)]

    @asynccontextmanager
    async def posted_events(self, *args: Any, **others: Any) -> AsyncGenerator[AsyncGenerator[Event]]:
        async def events() -> AsyncGenerator[Event]:
            decoder = SseDecoder()
            for piece in self.pieces:
                for event in decoder.feed(piece):
                    yield event

        yield events()


async def streamed(data: bytes, cuts: list[int]) -> list[dict[str, Any]]:
    server = OpenAIServer(CannedServer(data, cuts=cuts), model=None, token_ids=None, logprobs=None)
    return [chunk async for chunk in server.stream(CHAT, CallContext())]


def outcome(data: bytes, cuts: list[int]) -> list[dict[str, Any]] | None:
    """The chunks, None for an error that says whether to try again; anything else is raised."""
    try:
        return asyncio.run(streamed(data, cuts))
    except UpstreamError:
        return None


@given(st.lists(st.integers(0, 10_000), max_size=20))
def test_pieces_cut_anywhere_make_the_same_chunks(cuts):
    assert outcome(WHOLE, cuts) == CHUNKS


@given(st.integers(0, len(WHOLE) - 1))
def test_a_truncated_stream_is_an_error_until_the_choice_has_ended(end):
    chunks = outcome(WHOLE[:end], [])
    finish = WHOLE.index(b'"finish_reason"')
    after_finish = WHOLE.index(b"\n\n", finish) + 2
    assert chunks == (
        None if end < after_finish else CHUNKS[: 4 if end >= WHOLE.index(b"data: [DONE]") else 3]
    )


@given(
    st.lists(st.binary(max_size=40) | st.just(b"data: {"), max_size=6),
    st.lists(st.integers(0, 99), max_size=3),
)
def test_bytes_that_are_no_events_are_an_error(pieces, cuts):
    assert outcome(b"".join(pieces), cuts) is None


@given(st.lists(JSON, max_size=5))
def test_events_of_another_shape_are_an_error_or_taken_as_they_are(values):
    data = b"".join(b"data: " + orjson.dumps(value) + b"\n\n" for value in values) + b"data: [DONE]\n\n"
    chunks = outcome(data, [])
    assert chunks is None or chunks == values


@given(st.integers(1, len(WHOLE) - 1))
def test_two_interleaved_streams_are_an_error_or_whole_events(cut):
    chunks = outcome(WHOLE[:cut] + WHOLE + WHOLE[cut:], [])
    assert chunks is None or all(chunk in CHUNKS for chunk in chunks)
