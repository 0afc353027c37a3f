"""What goes over the pipes comes out whole or not at all."""

import io

import pytest

from agl.runners.orders import Word, framed, read_order, word_in


class Dripping(io.BytesIO):
    """A stream that gives little at a time, as pipes do."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 0, 3))


def test_an_order_is_read_whole_and_what_follows_stays() -> None:
    source = Dripping(framed(b"x" * 100) + b"d")
    assert read_order(source) == b"x" * 100
    assert source.read(1) == b"d"


@pytest.mark.parametrize("cut", [0, 3, 8, 50])
def test_a_stream_that_ends_early_holds_no_order(cut: int) -> None:
    assert read_order(Dripping(framed(b"x" * 100)[:cut])) is None


def test_a_word_is_one_line_and_comes_back() -> None:
    word = Word(kind="refused", cause="ConfigError", message="two\nlines")
    assert word.line().count(b"\n") == 1
    assert word_in(word.line()) == word


@pytest.mark.parametrize("line", [b"", b"hello", b"[1]", b'{"kind": "ready", "more": 1}', b"\xff"])
def test_other_lines_are_no_words(line: bytes) -> None:
    assert word_in(line) is None
