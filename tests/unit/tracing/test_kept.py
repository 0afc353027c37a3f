"""The beginning and the end of a stream, within bounds."""

import tracemalloc

from agl.tracing.kept import KeptBytes


def kept(limit: int, *pieces: bytes) -> KeptBytes:
    stream = KeptBytes(limit)
    for piece in pieces:
        stream.add(piece)
    return stream


def test_what_fits_is_kept_as_it_came() -> None:
    stream = kept(8, b"abc", b"", b"defgh")
    assert (stream.text(), stream.num_bytes) == ("abcdefgh", 8)


def test_of_more_the_beginning_and_the_end_stay_and_the_cut_is_said() -> None:
    stream = kept(8, b"abcdef", b"ghijkl", b"mnop")
    assert stream.text() == "abcd\n[... 8 bytes left out ...]\nmnop"
    assert stream.num_bytes == 16
    assert kept(8, b"abcdefghijklmnop").text() == stream.text()
    assert kept(8, *(bytes([byte]) for byte in b"abcdefghijklmnop")).text() == stream.text()


def test_characters_that_the_cut_divides_are_left_out_and_bytes_that_are_no_text_survive() -> None:
    divided = kept(
        8, "ab€€€€€€yz".encode()
    )  # € has three bytes: the head ends inside of one, the tail begins in one
    assert divided.text() == "ab\n[... 14 bytes left out ...]\nyz"
    assert kept(64, b"\xff\xfe ok \xe2\x82").text() == "�� ok �"


def test_the_end_is_without_the_space_around_it() -> None:
    assert kept(64, b"Traceback\nboom\n\n").end(4) == "boom"


def test_memory_does_not_grow_with_the_stream() -> None:
    stream = KeptBytes(64 * 1024)
    piece = b"x" * 4096
    for _ in range(100):
        stream.add(piece)
    tracemalloc.start()
    for _ in range(5_000):
        stream.add(piece)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 300_000
    assert stream.num_bytes == 5_100 * 4096
