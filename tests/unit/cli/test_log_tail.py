"""The end of a growing file."""

from __future__ import annotations

from pathlib import Path

import pytest

from agl.cli.log_tail import last_lines, lines_from


@pytest.mark.parametrize(
    ("content", "count", "lines"),
    [
        (b"", 3, []),
        (b"\n", 3, [""]),
        (b"one", 3, []),
        (b"one\ntwo\nthr", 3, ["one", "two"]),
        (b"one\r\ntwo\nthree\n", 2, ["two", "three"]),
        (b"one\ntwo\n", 0, ["one", "two"]),
        (b"\xff\n", 1, ["\ufffd"]),
    ],
)
def test_the_last_whole_lines_are_read(tmp_path: Path, content: bytes, count: int, lines: list[str]) -> None:
    file = tmp_path / "log"
    file.write_bytes(content)
    found, place = last_lines(file, count)
    assert found == lines
    assert content[place:] == content.rpartition(b"\n")[2]


def test_a_long_file_is_read_from_its_end(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("".join(f"line {number} {'x' * 50}\n" for number in range(20_000)))
    assert [line.split()[1] for line in last_lines(file, 3)[0]] == ["19997", "19998", "19999"]
    assert len(last_lines(file, 5000)[0]) == 5000
    assert len(last_lines(file, 0)[0]) == 20_000


def test_what_is_written_later_comes_line_by_line_until_the_writer_has_ended(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("old\nne")
    pieces = [b"w\nsec", b"ond\n", b"last, without its end"]
    left = [*pieces]

    def write(_: float) -> None:
        with file.open("ab") as log:
            log.write(left.pop(0))

    lines = lines_from(file, 4, has_ended=lambda: not left, sleep=write)
    assert list(lines) == ["new", "second", "last, without its end"]


def test_a_file_that_was_begun_anew_is_read_from_its_beginning_and_one_that_is_gone_ends(
    tmp_path: Path,
) -> None:
    file = tmp_path / "log"
    file.write_text("a long first line\n")
    steps = iter([lambda: file.write_text("anew\n"), file.unlink])
    lines = lines_from(file, 18, has_ended=lambda: False, sleep=lambda _: next(steps)())
    assert list(lines) == ["anew"]
