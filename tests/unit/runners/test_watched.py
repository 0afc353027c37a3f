"""What a process writes, line by line. Real processes: tests/integration/test_process_runners.py."""

import asyncio

from agl.runners.orders import Word
from agl.runners.watched import LINE_BYTES, Lines, WatchedProcess, within


def test_pieces_become_lines_and_what_has_no_end_comes_last() -> None:
    taken: list[bytes] = []
    lines = Lines(taken.append)
    for piece in (b"on", b"e\ntwo\nth", b"ree"):
        lines.add(piece)
    assert taken == [b"one", b"two"]
    lines.end()
    lines.end()
    assert taken == [b"one", b"two", b"three"]


def test_an_endless_line_is_cut_and_not_kept() -> None:
    taken: list[bytes] = []
    lines = Lines(taken.append)
    lines.add(b"x" * (LINE_BYTES + 1))
    assert taken == [b"x" * (LINE_BYTES + 1)]


async def test_words_are_understood_and_lines_are_kept_and_logged(caplog) -> None:
    process = WatchedProcess(3)
    refusal = Word(kind="refused", cause="ConfigError", message="no")
    with caplog.at_level("INFO"):
        process.pipe_data_received(1, Word(kind="settled").line() + refusal.line())
        process.pipe_data_received(2, b"".join(b"line %d\n" % number for number in range(30)))
    assert (process.settled, process.refused) == (True, refusal)
    assert (len(process.tail), process.tail[-1]) == (20, "line 29")
    assert "[3] line 0" in caplog.messages


async def test_a_wait_for_an_event_is_limited() -> None:
    event = asyncio.Event()
    assert not await within(event, 0.01)
    event.set()
    assert await within(event, 0.0)
