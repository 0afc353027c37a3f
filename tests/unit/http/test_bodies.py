"""Bodies that come piece by piece, and packed ones."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from agl.http.bodies import PAUSE_BYTES, Body, PackingError, unpacked


async def test_a_reader_gets_what_has_come_and_waits_for_more() -> None:
    body = Body(lambda _: None)
    body.feed(b"a")
    body.feed(b"b")
    assert await body.read() == b"ab"
    later = asyncio.ensure_future(body.read())
    await asyncio.sleep(0)
    assert not later.done()
    body.feed(b"c")
    assert await later == b"c"
    body.end()
    assert await body.read() == b""
    assert body.is_read


async def test_what_came_before_a_failure_is_read_before_it_is_raised() -> None:
    body = Body(lambda _: None)
    body.feed(b"a")
    body.end(ValueError("cut"))
    assert await body.read() == b"a"
    with pytest.raises(ValueError, match="cut"):
        await body.read()
    assert not body.is_read


async def test_a_slow_reader_holds_the_server_up() -> None:
    told: list[bool] = []
    body = Body(told.append)
    body.feed(b"a" * PAUSE_BYTES)
    assert told == []
    body.feed(b"a")
    body.feed(b"a")
    assert told == [True]
    assert len(await body.read()) == PAUSE_BYTES + 2
    assert told == [True, False]


def test_a_packed_body_is_unpacked_up_to_a_size() -> None:
    packed = gzip.compress(b"a" * 1000)
    assert unpacked(packed, b"gzip", max_bytes=1000) == b"a" * 1000
    assert unpacked(b"a", b"", max_bytes=1) == b"a"
    with pytest.raises(PackingError, match="more than 999 bytes"):
        unpacked(packed, b"gzip", max_bytes=999)
    with pytest.raises(PackingError, match="broken"):
        unpacked(b"nonsense", b"gzip", max_bytes=1000)
    with pytest.raises(PackingError, match="packed as br, which was not asked for"):
        unpacked(b"a", b"br", max_bytes=1)
