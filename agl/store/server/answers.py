"""Answers: values as JSON, compressed where it pays, sent in pieces that a slow client cannot turn into memory.

Records are encoded by orjson from their fields, as pydantic would: three times as fast for spans, fifteen times for a
claim.
"""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Any, cast

import orjson
from pydantic import BaseModel

from agl.store import wire
from agl.store.server.bodies import TURN_SECONDS
from agl.store.server.operation import Answer, Headers, Send
from agl.store.server.polls import Receive
from agl.store.server.refusal import ClientGoneError
from agl.types import Page

_GZIP_BYTES = 16 * 1024  # below, compressing takes longer than a local network
_PIECE_BYTES = 256 * 1024
_THREAD_BYTES = 128 * 1024
_MANY = 64  # longer lists are encoded in turns, so many records at once:
_FEW = 16
_ACCEPTS_GZIP = re.compile(rb"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?!0(?:\.0*)?\s*(?:,|$))[^,]*)?(?:,|$)")


def json_bytes(value: object) -> bytes:
    """Return a value as JSON: records, and lists and dicts of them."""
    return orjson.dumps(value, default=_fields)


def _fields(value: object) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        return vars(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


async def encoded(value: object) -> bytes:
    """Return a value as JSON. A long list is encoded in turns with other requests."""
    if isinstance(value, Page):
        items: Sequence[Any] = value.items  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if len(items) > _MANY:  # pyright: ignore[reportUnknownArgumentType]
            tail = b'],"next_cursor":%b}' % orjson.dumps(value.next_cursor)  # pyright: ignore[reportUnknownMemberType]
            return b'{"items":[%b%b' % (await _joined(items), tail)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, list) and len(value) > _MANY:  # pyright: ignore[reportUnknownArgumentType]
        return b"[%b]" % await _joined(value)  # pyright: ignore[reportUnknownArgumentType]
    return json_bytes(cast("object", value))


async def _joined(items: Sequence[Any]) -> bytes:
    parts: list[bytes] = []
    turn_ends = time.perf_counter() + TURN_SECONDS
    for start in range(0, len(items), _FEW):
        parts.append(json_bytes(items[start : start + _FEW])[1:-1])
        if time.perf_counter() > turn_ends:
            await asyncio.sleep(0)
            turn_ends = time.perf_counter() + TURN_SECONDS
    return b",".join(parts)


def refusal(code: str, message: str, *, closes: bool = False) -> Answer:
    """Return the answer of an error."""
    headers: list[tuple[bytes, bytes]] = []
    if code == "unauthorized":
        headers.append((b"www-authenticate", b"Bearer"))
    if code in wire.RETRIED:
        headers.append((b"retry-after", b"1"))
    if closes:
        headers.append((b"connection", b"close"))
    text = " ".join(message.split())[:2000].encode("utf-8", "replace").decode("utf-8")
    body = orjson.dumps(wire.error_body(code, text))
    return Answer(status=wire.CODES[code][0], body=body, headers=tuple(headers))


async def compressed(answer: Answer, headers: Headers) -> Answer:
    """Return the answer, compressed when it is large and the client reads that."""
    accepts = headers.get(b"accept-encoding")
    if accepts is None or len(answer.body) < _GZIP_BYTES or not _ACCEPTS_GZIP.search(accepts):
        return answer
    if len(answer.body) > _THREAD_BYTES:
        body = await asyncio.to_thread(_gzip, answer.body)
    else:
        body = _gzip(answer.body)
    added = ((b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
    return Answer(
        status=answer.status, body=body, media_type=answer.media_type, headers=(*answer.headers, *added)
    )


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(level=1, wbits=31)
    return packer.compress(body) + packer.flush()


async def send_answer(send: Send, answer: Answer) -> None:
    """Send an answer that is whole; a large one in pieces, no faster than the client reads."""
    size = len(answer.body)
    await _start(send, answer, size)
    if size <= _PIECE_BYTES:
        await send({"type": "http.response.body", "body": answer.body})
        return
    for piece, more in _pieces(answer.body):
        await send({"type": "http.response.body", "body": piece, "more_body": more})


def _pieces(body: bytes) -> Iterator[tuple[bytes, bool]]:
    whole = memoryview(body)
    for start in range(0, len(body), _PIECE_BYTES):
        yield bytes(whole[start : start + _PIECE_BYTES]), start + _PIECE_BYTES < len(body)


async def send_chunks(send: Send, receive: Receive, answer: Answer) -> None:
    """Send an answer that is made while it is sent.

    Raises:
        ClientGoneError: the client left first; what makes the answer is closed.
    """
    assert answer.chunks is not None
    gone = asyncio.create_task(_gone(receive))
    try:
        async with aclosing(answer.chunks) as chunks:
            chunk = await anext(chunks, b"")  # begun, it will also be ended
            await _start(send, answer, answer.length)
            while chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                if gone.done():
                    raise ClientGoneError
                chunk = await anext(chunks, b"")
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _start(send: Send, answer: Answer, length: int | None) -> None:
    headers = [(b"content-type", answer.media_type.encode("latin-1")), *answer.headers]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
