"""Text for people at a terminal."""

import io
import json

import pytest

from agl.cli import text
from agl.cli.text import Column

ID = Column(title="id", is_id=True)
NAME = Column(title="name", least=6)
NUM = Column(title="n", align="right")
EXTRA = Column(title="extra", rank=1)


def test_a_table_has_heads_ids_first_and_numbers_on_the_right() -> None:
    assert text.table([ID, NAME, NUM], [["r-1", "one", 5], ["r-22", None, 10]], width=80) == [
        "id    name   n",
        "r-1   one    5",
        "r-22  -     10",
    ]


def test_where_the_line_is_short_columns_are_left_out_and_then_cut_but_never_ids() -> None:
    rows = [["an-id", "a name that is long", 5, "more"]]
    assert text.table([ID, NAME, NUM, EXTRA], rows, width=25) == [
        "id     name      n  extra",
        "an-id  a nam...  5  more",
    ]
    assert text.table([ID, NAME, NUM, EXTRA], rows, width=22) == [
        "id     name          n",
        "an-id  a name th...  5",
    ]


def test_an_id_that_takes_most_of_a_line_stands_above_its_row() -> None:
    lines = text.table([ID, NAME, NUM], [["x" * 30, "a name", 5]], width=40)
    assert lines == ["id", "    name    n", "x" * 30, "    a name  5"]


@pytest.mark.parametrize("width", [40, 80, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    rows = [["id-1", "値" * 100, 1, "x" * 30], ["id-2", "y" * 100, 2, "z" * 90]]
    lines = text.table([ID, NAME, NUM, EXTRA], rows, width=width)
    assert max(text.columns_of(line) for line in lines) <= width


def test_what_a_terminal_would_obey_never_gets_there() -> None:
    evil = "a\x1b[31mred\x07\nnext\u202eback"
    assert text.plain(evil) == "a [31mred  next back"
    assert text.plain_lines("a\tb\x1b\n  c\r\n") == ["a   b ", "  c"]
    assert "\x1b" not in "".join(text.table([NAME], [[evil]], width=40))
    assert text.plain({"ü": 1}) == '{"ü": 1}'


def test_text_is_cut_by_the_columns_that_it_takes() -> None:
    assert text.shortened("one  two\nthree", 40) == "one two three"
    assert text.shortened("abcdefghij", 8) == "abcde..."
    assert text.shortened("値値値値値", 8) == "値値..."
    assert text.cut("a  b  cdefgh", 10) == "a  b  c..."
    assert [text.cut("abcdef", width) for width in (2, 0, -1)] == ["..", "", ""]
    assert text.columns_of("e\u0301値a") == 4


def test_fields_wrap_under_themselves_and_leave_out_what_is_not_there() -> None:
    assert text.fields([("Task", "one two three four"), ("Gone", None)], width=24) == [
        "Task        one two",
        "            three four",
    ]


def test_wrapped_text_keeps_the_indentation_of_code() -> None:
    assert text.wrapped("    call(first, second)\nshort", width=20, indent="| ") == [
        "|     call(first,",
        "|     second)",
        "| short",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown", "old"),
    [
        (0.0, "0ms", "0s"),
        (0.00001, "0ms", "0s"),
        (0.0004, "0.4ms", "0s"),
        (0.35, "350ms", "0s"),
        (2.345, "2.35s", "2s"),
        (12.34, "12.3s", "12s"),
        (754.0, "12m34s", "12m"),
        (3600 * 3 + 301, "3h05m", "3h"),
        (86_400 * 2 + 4 * 3600, "2d04h", "2d"),
    ],
)
def test_times_are_short(seconds: float, shown: str, old: str) -> None:
    assert (text.duration(seconds), text.age(seconds)) == (shown, old)


def test_numbers_and_counts() -> None:
    assert [text.number(None), text.number(0.0), text.number(0.123456)] == ["-", "0", "0.1235"]
    assert [text.counted(1, "span"), text.counted(1234, "span"), text.counted(0, "try", "tries")] == [
        "1 span",
        "1,234 spans",
        "0 tries",
    ]


def test_a_reader_without_utf_8_gets_ascii() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    text.say(["a → b…", "値"], out)
    out.flush()
    assert out.buffer.getvalue().decode("ascii").split() == ["a", ">", "b...", "?"]  # type: ignore[attr-defined]
    assert text.speaks_unicode(io.TextIOWrapper(io.BytesIO(), encoding="UTF-8"))


def test_json_is_one_ascii_document(capsys: pytest.CaptureFixture[str]) -> None:
    text.say_json({"ü": [1]})
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert json.loads(printed) == {"ü": [1]}
