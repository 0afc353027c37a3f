"""Answers of HTTP/1.1, by both parsers."""

from __future__ import annotations

import pytest

from agl.http import parsing
from agl.http.parsing import (
    MAX_HEAD_BYTES,
    Answer,
    BadAnswerError,
    FastParser,
    Parser,
    PlainParser,
    parser_maker,
)

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nRetry-After: 7\r\n\r\nnull"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nnu\r\n2\r\nll\r\n0\r\n\r\n"


@pytest.fixture(params=[FastParser, PlainParser])
def parser(request: pytest.FixtureRequest) -> Parser:
    made: Parser = request.param()
    made.begin()
    return made


def read(parser: Parser, data: bytes, size: int) -> Answer | None:
    """Feed data in pieces of a size."""
    answer = None
    for start in range(0, len(data), size):
        assert answer is None
        answer = parser.feed(data[start : start + size])
    return answer


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_answer_comes_whole_however_its_bytes_come(parser: Parser, size: int) -> None:
    answer = read(parser, WHOLE, size)
    assert answer is not None
    assert (answer.status, answer.body, answer.keep_alive) == (200, b"null", True)
    assert answer.headers[b"retry-after"] == b"7"


@pytest.mark.parametrize("size", [1, 1000])
def test_chunks_are_put_together(parser: Parser, size: int) -> None:
    answer = read(parser, CHUNKED, size)
    assert answer is not None
    assert answer.body == b"null"


def test_a_connection_has_answer_after_answer(parser: Parser) -> None:
    for status in (200, 404, 503):
        answer = parser.feed(WHOLE.replace(b"200", str(status).encode()))
        assert answer is not None
        assert answer.status == status
        parser.begin()


def test_no_body_is_an_empty_one(parser: Parser) -> None:
    answer = parser.feed(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert answer is not None
    assert answer.body == b""


def test_a_server_that_will_close_says_so(parser: Parser) -> None:
    answer = parser.feed(WHOLE.replace(b"Retry-After: 7", b"connection: close"))
    assert answer is not None
    assert not answer.keep_alive


def test_an_interim_answer_is_none(parser: Parser) -> None:
    assert parser.feed(b"HTTP/1.1 100 Continue\r\n\r\n") is None
    answer = parser.feed(WHOLE)
    assert answer is not None
    assert answer.status == 200


def test_what_is_not_http_is_told(parser: Parser) -> None:
    with pytest.raises(BadAnswerError):
        parser.feed(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")


def test_the_fast_parser_is_used_where_it_is_installed() -> None:
    assert parser_maker() is FastParser


def test_a_body_can_be_taken_while_it_comes(parser: Parser) -> None:
    assert parser.feed(CHUNKED[:30]) is None
    assert parser.head is None
    assert parser.feed(CHUNKED[30:-10]) is None
    assert parser.head is not None
    assert parser.head.status == 200
    assert parser.take() == b"nu"
    assert parser.take() == b""
    answer = parser.feed(CHUNKED[-10:])
    assert answer is not None
    assert answer.body == b"ll"
    assert parser.head is None


def test_a_body_without_a_length_ends_with_the_connection(parser: Parser) -> None:
    assert parser.feed(b"HTTP/1.1 200 OK\r\nx: y\r\n\r\nnull") is None
    answer = parser.end()
    assert answer is not None
    assert (answer.status, answer.body, answer.keep_alive) == (200, b"null", False)


@pytest.mark.parametrize("cut", [10, len(WHOLE) - 1])
def test_an_answer_that_is_cut_is_none(parser: Parser, cut: int) -> None:
    assert parser.feed(WHOLE[:cut]) is None
    assert parser.end() is None


def test_a_chunked_answer_that_is_cut_is_none(parser: Parser) -> None:
    assert parser.feed(CHUNKED[:-5]) is None
    assert parser.end() is None


def test_headers_without_an_end_are_refused(parser: Parser) -> None:
    parser.feed(b"HTTP/1.1 200 OK\r\n")
    line = b"x: " + b"y" * (MAX_HEAD_BYTES // 2) + b"\r\n"
    parser.feed(line)
    with pytest.raises(BadAnswerError):
        parser.feed(line)


def test_a_body_without_an_end_is_refused(parser: Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MAX_BODY_BYTES", 5)
    parser.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")
    assert parser.take() == b"abc"
    parser.feed(b"def")
    with pytest.raises(BadAnswerError, match="more than 5 bytes"):
        parser.feed(b"ghi")
