"""Exchange and Delivery beside an ASGI server that is a list of messages."""

import asyncio

import pytest

from agl.proxy.exchange import ClientGoneError, Delivery, Exchange
from agl.proxy.refusal import CallRefusedError
from agl.proxy.upstream import NATIVE, NativeEvent

CHUNK = {"choices": []}


class Server:
    """Receives what it is given and keeps what is sent."""

    def __init__(self, *received):
        self.received = [*received, {"type": "http.disconnect"}]
        self.sent = []

    async def receive(self):
        return self.received.pop(0)

    async def send(self, message):
        self.sent.append(message)

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent)


class Words:
    """Words every chunk as ``.``, an end as ``end``, an error as its message."""

    def __init__(self, word=b"."):
        self.word = word

    def chunk(self, chunk):
        return self.word

    def end(self, answer):
        return b"end"

    def error(self, message, *, status, code, body=None):
        return message.encode()


def exchange_of(server, headers=(), **scope):
    scope = {"path": "/x y", "method": "POST", "headers": list(headers), **scope}
    return Exchange(scope, server.receive, server.send)


def part(body, *, more=False):
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_request_is_read_as_it_came():
    exchange = exchange_of(
        Server(), [(b"a", b"\xe9"), (b"b", b"")], raw_path=b"/x%20y", query_string=b"a=1&b=c%20d"
    )
    assert (exchange.path, exchange.raw_path, exchange.method) == ("/x y", b"/x%20y", "POST")
    assert (exchange.header(b"a"), exchange.header(b"b"), exchange.header(b"c")) == ("é", None, None)
    assert exchange.parameters() == {"a": "1", "b": "c d"}
    assert exchange_of(Server()).raw_path == b"/x y"


def test_headers_are_limited_all_together():
    exchange_of(Server(), [(b"a", b"x" * 60_000)]).check_headers()
    with pytest.raises(CallRefusedError) as caught:
        exchange_of(Server(), [(b"a", b"x" * 60_000), (b"b", b"x" * 6_000)]).check_headers()
    assert caught.value.status == 431


async def test_a_body_comes_in_parts():
    assert await exchange_of(Server(part(b"a", more=True), part(b"b"))).body(2) == b"ab"
    with pytest.raises(ClientGoneError):
        await exchange_of(Server(part(b"a", more=True))).body(2)


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"3")]])
async def test_a_body_that_is_too_large_is_read_to_its_end_and_refused(headers):
    server = Server(part(b"ab", more=True), part(b"c"))
    with pytest.raises(CallRefusedError) as caught:
        await exchange_of(server, headers).body(2)
    assert (caught.value.status, len(server.received)) == (413, 1)


async def test_a_body_without_end_is_not_read_for_ever():
    server = Server(*[part(b"x" * 10, more=True)] * 100)
    with pytest.raises(CallRefusedError):
        await exchange_of(server).body(10)
    assert len(server.received) > 80


async def test_an_answer_has_its_length():
    server = Server()
    await exchange_of(server).answer(201, b"abc", (b"x-y", b"z"), content_type=b"text/plain")
    start, body = server.sent
    assert start["status"] == 201
    assert start["headers"] == [(b"content-type", b"text/plain"), (b"content-length", b"3"), (b"x-y", b"z")]
    assert body["body"] == b"abc"


async def test_a_disconnect_is_waited_for_past_what_is_left_of_the_body():
    server = Server(part(b"a", more=True), part(b"b"))
    await exchange_of(server).disconnect()
    assert server.received == []


async def sent(*chunks, words=None, is_last=False):
    server = Server()
    delivery = Delivery(exchange_of(server), words or Words())
    for chunk in chunks:
        await delivery.send(chunk, span_id="5pan", is_last=is_last)
    return server, delivery


async def test_a_stream_begins_with_the_first_words_and_ends_when_it_is_told():
    server, delivery = await sent(CHUNK, CHUNK)
    assert delivery.begun
    assert dict(server.sent[0]["headers"])[b"x-request-id"] == b"5pan"
    assert server.body == b".."
    delivery.end({})
    assert server.body == b".."
    await delivery.finish()
    assert (server.body, server.sent[-1]["more_body"]) == (b"..end", False)


async def test_chunks_without_words_begin_nothing():
    server, delivery = await sent(CHUNK, words=Words(b""))
    assert (delivery.begun, server.sent) == (False, [])


async def test_a_failure_takes_the_place_of_the_end_and_leaves_the_response_open():
    server, delivery = await sent(CHUNK)
    delivery.end({})
    delivery.fail("broken", status=502, code="502")
    await delivery.finish()
    assert (server.body, server.sent[-1]["more_body"]) == (b".broken", True)


async def test_events_that_are_passed_through_wait_from_the_last_one_on():
    events = [
        NativeEvent(data=data, last=last) for data, last in ((b"1", False), (b"2", True), (b"3", False))
    ]
    server, delivery = await sent(*({NATIVE: event} for event in events))
    assert server.body == b"1"
    delivery.end({})
    await delivery.finish()
    assert server.body == b"123"


async def test_events_behind_the_models_end_wait_also():
    server, _ = await sent({NATIVE: NativeEvent(data=b"1", last=False)}, is_last=True)
    assert server.body == b""


async def test_a_client_that_has_left_is_sent_nothing():
    server, delivery = await sent(CHUNK)
    delivery.leave()
    await delivery.send(CHUNK, span_id="5pan", is_last=False)
    delivery.end({})
    assert server.body == b"."


class Stalled(Server):
    """Never takes what is sent."""

    async def send(self, message):
        await asyncio.Event().wait()


async def test_a_client_that_does_not_take_the_end_is_given_up():
    delivery = Delivery(exchange_of(Stalled()), Words(), finish_seconds=0.01)
    with pytest.raises(ClientGoneError):
        await delivery.finish()
