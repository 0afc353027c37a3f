"""The connections of one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from scripted_store import BREAKS, Asked, Line, Reply, ScriptedStore, until

from agl.http import connections
from agl.http.connections import (
    MAX_CONNECTIONS,
    Connections,
    LostError,
    NotHttpError,
    NotSentError,
    PollCutError,
)
from agl.http.parsing import FastParser

GET = b"GET /x HTTP/1.1\r\nhost: h\r\n\r\n"


def opened(server: ScriptedStore) -> Connections:
    return Connections(server.dial, FastParser)


async def never(asked: Asked) -> Reply:
    return await asyncio.get_running_loop().create_future()


async def ask(made: Connections, *, seconds: float = 10.0) -> int:
    return (await made.exchange(GET, seconds=seconds)).status


async def test_calls_in_turn_share_a_connection(server: ScriptedStore) -> None:
    server.on("GET /x", lambda _: 1)
    made = opened(server)
    assert [await ask(made) for _ in range(3)] == [200, 200, 200]
    assert len(server.connections) == 1


async def test_calls_side_by_side_have_one_each_and_leave_them_to_later_ones(server: ScriptedStore) -> None:
    server.on("GET /x", lambda _: 1)
    made = opened(server)
    await asyncio.gather(*(ask(made) for _ in range(5)))
    await asyncio.gather(*(ask(made) for _ in range(5)))
    assert len(server.connections) == 5


async def test_more_calls_than_connections_wait_for_their_turn(server: ScriptedStore) -> None:
    server.on("GET /x", lambda _: 1)
    made = opened(server)
    assert (
        await asyncio.gather(*(ask(made) for _ in range(3 * MAX_CONNECTIONS))) == [200] * 3 * MAX_CONNECTIONS
    )
    assert len(server.connections) == MAX_CONNECTIONS


async def test_polls_do_not_take_the_place_of_calls(server: ScriptedStore) -> None:
    server.on("GET /poll", never)
    server.on("GET /x", lambda _: 1)
    made = opened(server)
    poll = GET.replace(b"/x", b"/poll")
    polls = [asyncio.ensure_future(made.poll(poll, seconds=60)) for _ in range(MAX_CONNECTIONS + 1)]
    assert await ask(made) == 200
    made.cut_polls()
    assert {type(end) for end in await asyncio.gather(*polls, return_exceptions=True)} == {PollCutError}


async def test_a_poll_that_is_still_connecting_is_cut_too(server: ScriptedStore) -> None:
    connected = asyncio.Event()

    async def slowly(factory: Callable[[], asyncio.Protocol]) -> None:
        await connected.wait()
        await server.dial(factory)

    made = Connections(slowly, FastParser)
    poll = asyncio.ensure_future(made.poll(GET, seconds=60))
    await asyncio.sleep(0)
    made.cut_polls()
    connected.set()
    with pytest.raises(PollCutError):
        await poll
    assert server.connections[0].is_closing()


async def test_a_connection_that_was_long_idle_is_not_used_again(
    server: ScriptedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("GET /x", lambda _: 1)
    made = opened(server)
    await ask(made)
    monkeypatch.setattr(connections, "IDLE_SECONDS", -1.0)
    await ask(made)
    assert [line.is_closing() for line in server.connections] == [True, False]


async def test_a_connection_that_the_server_will_close_is_not_used_again(server: ScriptedStore) -> None:
    server.on("GET /x", lambda _: Reply(1, headers={"connection": "close"}))
    made = opened(server)
    await ask(made)
    await ask(made)
    assert [line.is_closing() for line in server.connections] == [True, True]


async def test_an_idle_connection_that_broke_is_not_used_again(server: ScriptedStore) -> None:
    server.on("GET /x", lambda _: 1)
    made = opened(server)
    await ask(made)
    server.break_all()
    assert await ask(made) == 200
    assert len(server.connections) == 2


async def test_an_idle_connection_that_breaks_at_its_next_use_is_stale(server: ScriptedStore) -> None:
    server.on("GET /x", [1, BREAKS, BREAKS])
    made = opened(server)
    await ask(made)
    with pytest.raises(LostError) as stale:
        await ask(made)
    assert stale.value.stale
    with pytest.raises(LostError, match="reset by peer") as fresh:
        await ask(made)
    assert not fresh.value.stale


async def test_no_connection_is_nothing_sent(server: ScriptedStore) -> None:
    server.down = True
    with pytest.raises(NotSentError, match="nobody listens"):
        await ask(opened(server))


async def test_a_port_that_is_connected_to_itself_is_no_server(server: ScriptedStore) -> None:
    async def dial(factory: Callable[[], asyncio.Protocol]) -> None:
        address = ("127.0.0.1", 40001)
        line = Line(server, factory(), sockname=address, peername=address)
        line.protocol.connection_made(line)

    with pytest.raises(NotSentError, match="nobody listens"):
        await ask(Connections(dial, FastParser))


async def test_an_answer_that_does_not_come_in_time_is_lost_and_its_connection_too(
    server: ScriptedStore,
) -> None:
    server.on("GET /x", never)
    with pytest.raises(LostError, match=r"no answer within 0\.01 s"):
        await ask(opened(server), seconds=0.01)
    assert server.connections[0].is_closing()


async def test_a_cancelled_call_closes_its_connection(server: ScriptedStore) -> None:
    server.on("GET /x", never)
    made = opened(server)
    call = asyncio.ensure_future(ask(made))
    await asyncio.sleep(0)
    assert not server.connections[0].is_closing()
    call.cancel()
    await asyncio.wait((call,))
    assert server.connections[0].is_closing()


async def test_what_does_not_speak_http_is_told(server: ScriptedStore) -> None:
    made = opened(server)
    server.on("GET /x", never)
    call = asyncio.ensure_future(ask(made))
    await asyncio.sleep(0)
    server.connections[0].protocol.data_received(b"SSH-2.0\r\n\r\n")
    with pytest.raises(NotHttpError):
        await call


async def test_an_answer_to_nothing_ends_the_connection(server: ScriptedStore) -> None:
    server.on("GET /x", lambda _: 1)
    made = opened(server)
    await ask(made)
    server.connections[0].protocol.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
    await ask(made)
    assert [line.is_closing() for line in server.connections] == [True, False]


async def test_closing_ends_what_is_under_way_and_lets_nothing_new_begin(server: ScriptedStore) -> None:
    server.on("GET /x", lambda _: 1)
    made = opened(server)
    await ask(made)
    server.on("GET /x", never)
    call, poll = asyncio.ensure_future(ask(made)), asyncio.ensure_future(made.poll(GET, seconds=60))
    await asyncio.sleep(0)
    made.close()
    for one in (call, poll):
        with pytest.raises(LostError, match="closed on this side"):
            await one
    assert all(line.is_closing() for line in server.connections)
    with pytest.raises(NotSentError, match="closed on this side"):
        await ask(made)


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def test_a_stream_is_read_as_it_comes_and_its_connection_used_again(server: ScriptedStore) -> None:
    server.on("GET /x", never)
    made = opened(server)
    pieces: list[bytes] = []

    async def reading() -> int:
        async with made.stream(GET, seconds=10) as (head, body):
            while piece := await body.read():
                pieces.append(piece)
        return head.status

    call = asyncio.ensure_future(reading())
    await asyncio.sleep(0)
    line = server.connections[0]
    line.protocol.data_received(HEAD[:30])
    line.protocol.data_received(HEAD[30:] + b"2\r\nab\r\n")
    await until(lambda: pieces == [b"ab"])
    line.protocol.data_received(b"1\r\nc\r\n0\r\n\r\n")
    assert await call == 200
    assert pieces == [b"ab", b"c"]
    server.on("GET /x", lambda _: 1)
    assert await ask(made) == 200
    assert len(server.connections) == 1


async def test_leaving_a_stream_closes_its_connection_at_once(server: ScriptedStore) -> None:
    server.on("GET /x", never)
    made = opened(server)

    async def reading() -> None:
        async with made.stream(GET, seconds=10) as (_, body):
            await body.read()

    call = asyncio.ensure_future(reading())
    await asyncio.sleep(0)
    line = server.connections[0]
    line.protocol.data_received(HEAD + b"2\r\nab\r\n")
    await call
    assert line.is_closing()


async def test_a_cancelled_stream_closes_its_connection_at_once(server: ScriptedStore) -> None:
    server.on("GET /x", never)
    made = opened(server)

    async def reading() -> None:
        async with made.stream(GET, seconds=10):
            pass

    call = asyncio.ensure_future(reading())
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait((call,))
    assert server.connections[0].is_closing()


@pytest.mark.parametrize("head", [b"", HEAD])
async def test_a_stream_that_falls_silent_is_lost_late(server: ScriptedStore, head: bytes) -> None:
    server.on("GET /x", never)
    made = opened(server)

    async def reading() -> None:
        async with made.stream(GET, seconds=0.01) as (_, body):
            await body.read()

    call = asyncio.ensure_future(reading())
    await asyncio.sleep(0)
    server.connections[0].protocol.data_received(head)
    with pytest.raises(LostError, match=r"nothing came for 0\.01 s") as lost:
        await call
    assert lost.value.late


async def test_a_stream_that_is_cut_says_so_after_what_came(server: ScriptedStore) -> None:
    server.on("GET /x", never)
    made = opened(server)
    pieces: list[bytes] = []

    async def reading() -> None:
        async with made.stream(GET, seconds=10) as (_, body):
            while piece := await body.read():
                pieces.append(piece)

    call = asyncio.ensure_future(reading())
    await asyncio.sleep(0)
    server.connections[0].protocol.data_received(HEAD + b"2\r\nab\r\n")
    server.break_all()
    with pytest.raises(LostError, match="reset by peer"):
        await call
    assert pieces == [b"ab"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_body_without_a_length_ends_with_its_connection(
    server: ScriptedStore, streamed: bool
) -> None:
    server.on("GET /x", never)
    made = opened(server)

    async def reading() -> bytes:
        if not streamed:
            return (await made.exchange(GET, seconds=10)).body
        async with made.stream(GET, seconds=10) as (_, body):
            parts = [await body.read()]
            while parts[-1]:
                parts.append(await body.read())
        return b"".join(parts)

    call = asyncio.ensure_future(reading())
    await asyncio.sleep(0)
    line = server.connections[0]
    line.protocol.data_received(b"HTTP/1.1 200 OK\r\n\r\nab")
    await asyncio.sleep(0)
    line.protocol.data_received(b"c")
    line.protocol.connection_lost(None)
    assert await call == b"abc"


async def test_exchanges_without_a_limit_do_not_wait(server: ScriptedStore) -> None:
    server.on("GET /x", lambda _: 1)
    made = Connections(server.dial, FastParser, max_connections=None)
    assert await asyncio.gather(*(ask(made) for _ in range(MAX_CONNECTIONS + 1)))
    assert len(server.connections) == MAX_CONNECTIONS + 1
