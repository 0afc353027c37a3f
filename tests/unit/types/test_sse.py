from __future__ import annotations

import re
from collections import deque

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agl.types.sse import Event, EventTooLargeError, SseDecoder, encode


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(stream) + 1) for place in places})
    return [stream[start:end] for start, end in zip([0, *ends], [*ends, len(stream)], strict=True)]


def read(pieces: list[bytes]) -> list[Event]:
    decoder = SseDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


def by_the_book(stream: bytes) -> list[tuple[str, bytes]]:
    """The specification's algorithm, line by line over the whole stream."""
    if stream.startswith(b"\xef\xbb\xbf"):
        stream = stream[3:]
    *lines, _ = re.split(rb"\r\n|\n|\r", stream)
    events, kind, data = [], "", b""
    for line in lines:
        if line == b"":
            if data:
                events.append((kind or "message", data[:-1]))
            kind, data = "", b""
        elif not line.startswith(b":"):
            field, _, value = line.partition(b":")
            value = value[1:] if value[:1] == b" " else value
            if field == b"data":
                data += value + b"\n"
            elif field == b"event":
                kind = value.decode("utf-8", "replace")
    return events


def plain(events: list[Event]) -> list[tuple[str, bytes]]:
    return [(event.event, event.data) for event in events]


FIELDS = ["data: ", "data:", "data", "event: ", "event: error", "id: 1", ": ping", "retry: 3"]
VALUES = ["{}", "[DONE]", "é", "€uro", "😀", " ", ":", "\ufeff", "x"]
BITS = st.sampled_from([*FIELDS, *VALUES, "\n", "\n", "\r\n", "\r"])
STREAMS = st.lists(BITS, max_size=40).map(lambda bits: "".join(bits).encode())


@given(stream=STREAMS, places=st.lists(st.integers(0, 400), max_size=12))
@example(stream=b"data: a\r\n\r\ndata: b\r\r", places=[8, 10])
@example(stream=b"\xef\xbb\xbfdata: a\n\n", places=[1, 2])
def test_events_are_the_specifications_wherever_the_pieces_are_cut(stream: bytes, places: list[int]):
    assert plain(read(cut(stream, places))) == by_the_book(stream)


def test_every_border_of_a_stream_gives_the_same_events():
    stream = (
        '\ufeff: hello\r\n\r\nevent: delta\r\ndata: {"a":\r\ndata: "€"}\r\n\r\ndata: [DONE]\r\n\r\n'.encode()
    )
    expected = [("delta", '{"a":\n"€"}'.encode()), ("message", b"[DONE]")]
    for place in range(len(stream) + 1):
        assert plain(read([stream[:place], stream[place:]])) == expected
    assert plain(read([stream[place : place + 1] for place in range(len(stream))])) == expected


def test_comments_and_unknown_fields_are_passed_over():
    assert read([b": ping\n\nid: 7\nretry: 10\nfoo: bar\ndata: x\n\n"]) == [Event("message", b"x")]


def test_an_event_without_data_is_none_and_its_type_does_not_last():
    assert read([b"event: ping\n\ndata: x\n\n"]) == [Event("message", b"x")]


def test_an_empty_data_line_is_an_event():
    assert read([b"data:\n\ndata\n\n"]) == [Event("message", b""), Event("message", b"")]


@pytest.mark.parametrize("begun", [b"d", b"data: x", b"data: x\n", b"event: e\n", b"data: x\n\ndata"])
def test_a_stream_that_ends_inside_an_event_was_cut(begun: bytes):
    decoder = SseDecoder()
    assert not decoder.inside_event
    decoder.feed(begun)
    assert decoder.inside_event
    decoder.feed(b"\n\n")
    assert not decoder.inside_event


@pytest.mark.parametrize("piece", [b"x" * 10, b"data: x\n", b"data: " + b"x" * 1000 + b"\n"])
def test_an_event_that_does_not_end_is_refused(piece: bytes):
    decoder = SseDecoder(max_event_bytes=100)
    with pytest.raises(EventTooLargeError, match="longer than 100 bytes"):
        deque(map(decoder.feed, [piece] * 200), maxlen=0)


def test_any_number_of_short_events_and_comments_is_no_long_event():
    decoder = SseDecoder(max_event_bytes=100)
    for _ in range(200):
        assert decoder.feed(b"data: x\n\n: ping\n: ping\n") == [Event("message", b"x")]


@given(
    event=st.none() | st.sampled_from(["message", "delta", "é"]), data=st.text(max_size=40).map(str.encode)
)
def test_what_is_written_is_read(event: str | None, data: bytes):
    (back,) = read([encode(event, data)])
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert back == Event(event or "message", lines)


def test_an_event_is_written_as_everybody_does():
    assert encode(None, b"[DONE]") == b"data: [DONE]\n\n"
    assert encode("ping", b"{}") == b"event: ping\ndata: {}\n\n"
    assert encode(None, b"a\nb") == b"data: a\ndata: b\n\n"


@pytest.mark.parametrize("event", ["a\nb", "a\r"])
def test_a_type_of_two_lines_is_refused(event: str):
    with pytest.raises(ValueError, match="one line"):
        encode(event, b"x")
