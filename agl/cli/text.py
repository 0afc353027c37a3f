"""Text for people at a terminal: tables that fit, times, numbers, and nothing that a terminal would obey.

Every function that lays out returns lines; ``say`` is what prints them, for whatever encoding the reader has.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TextIO

NARROWEST = 40
"""Columns: a terminal that says to have fewer gets broken lines."""
GAP = "  "
"""Between the columns of a table."""
INDENT = "    "
"""Before what does not fit beside the id of its row."""
NOTHING = "-"
"""What stands for no value: no reward is never 0."""
_ELLIPSIS = "..."
_ASCII = str.maketrans(
    {
        "…": "...",
        "\u2013": "-",
        "\u2014": "-",
        "→": ">",
        "│": "|",
        "─": "-",
        "├": "|",
        "└": "`",
        "•": "*",
        "○": "o",
        "█": "#",
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u00d7": "x",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table.

    Args:
        title: its head.
        align: where cells stand that are shorter than the column.
        is_id: what users copy: never cut, never left out; it stands on a line of its own where it takes most of one.
        least: the narrowest to which cells may be cut; None is never cut.
        rank: where the line is too short, columns of high rank are left out first; those of 0 never are.
    """

    title: str
    align: Literal["left", "right"] = "left"
    is_id: bool = False
    least: int | None = None
    rank: int = 0


def terminal_width() -> int:
    """Return the columns of the terminal (or of ``COLUMNS``), 80 where nobody knows."""
    return max(NARROWEST, shutil.get_terminal_size().columns)


def say(lines: Iterable[str], out: TextIO | None = None) -> None:
    """Print lines, in ASCII where the reader's encoding is not UTF-8; ``out`` is standard output unless given."""
    target = sys.stdout if out is None else out
    unicode = speaks_unicode(target)
    for line in lines:
        print(line if unicode else ascii_text(line), file=target)


def say_json(value: Any) -> None:
    """Print one JSON document, in ASCII, on standard output."""
    print(json.dumps(value, indent=1))


def speaks_unicode(out: TextIO | None = None) -> bool:
    """Whether every character can be printed there; standard output unless given."""
    encoding = getattr(sys.stdout if out is None else out, "encoding", None) or "ascii"
    return encoding.lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig", "cp65001")


def ascii_text(text: str) -> str:
    """Return the text with its signs and lines replaced by ASCII alike, and any other character by ``?``."""
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def plain(value: object) -> str:
    """Return a value as one line with nothing in it that a terminal would obey: text as it is, all else as JSON."""
    return "".join(sign if sign.isprintable() else " " for sign in _written(value))


def plain_lines(value: object) -> list[str]:
    """Return a value as printable lines where its text has lines; tabs become spaces."""
    lines = _written(value).expandtabs(4).splitlines()
    return ["".join(sign if sign.isprintable() else " " for sign in line) for line in lines]


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def shortened(value: object, width: int) -> str:
    """Return a value as one printable line of at most ``width`` columns, its end cut; spaces are single."""
    return cut(" ".join(plain(value).split()), width)


def cut(text: str, width: int) -> str:
    """Return a printable line of at most ``width`` columns, with ``...`` in place of an end that was cut."""
    if columns_of(text) <= width:
        return text
    room = max(0, width - len(_ELLIPSIS))
    return f"{_beginning(text, room)}{_ELLIPSIS[: max(0, width)]}"


def columns_of(text: str) -> int:
    """Return how many columns a terminal takes for the text: 2 for each wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(sign) else 1 + (unicodedata.east_asian_width(sign) in "WF")
        for sign in text
    )


def _beginning(text: str, width: int) -> str:
    kept, used = list[str](), 0
    for sign in text:
        used += columns_of(sign)
        if used > width:
            break
        kept.append(sign)
    return "".join(kept)


def table(columns: Sequence[Column], rows: Sequence[Sequence[object]], *, width: int) -> list[str]:
    """Return a table as lines of at most ``width`` columns; None is shown as ``-``. Ids are whole whatever they take.

    Columns are taken in the order of their rank, as many as fit; those that may be cut are cut. An id that leaves less
    than half of the line has a line of its own, and the rest of its row stands indented below it.
    """
    cells = [[NOTHING if value is None else " ".join(plain(value).split()) for value in row] for row in rows]
    natural = [
        max(columns_of(text) for text in (column.title, *(row[index] for row in cells)))
        for index, column in enumerate(columns)
    ]
    ids = [index for index, column in enumerate(columns) if column.is_id]
    others = [index for index, column in enumerate(columns) if not column.is_id]
    taken = sum(natural[index] + len(GAP) for index in ids)
    if not others or taken <= width // 2:
        widths = _fitted(columns, natural, others, width - taken)
        shown = [index for index in range(len(columns)) if index in ids or index in widths]
        widths |= {index: natural[index] for index in ids}
        lines = [[column.title for column in columns], *cells]
        return [_row(columns, line, shown, widths) for line in lines]
    widths = _fitted(columns, natural, others, width - len(INDENT))
    shown, lines = [index for index in others if index in widths], list[str]()
    for row in [[column.title for column in columns], *cells]:
        lines.append(GAP.join(row[index] for index in ids))
        lines.append(f"{INDENT}{_row(columns, row, shown, widths)}".rstrip())
    return lines


def _fitted(
    columns: Sequence[Column], natural: Sequence[int], indexes: Sequence[int], room: int
) -> dict[int, int]:
    """The widths of those columns that fit into the room, by their index."""

    def least(index: int) -> int:
        limit = columns[index].least
        return natural[index] if limit is None else min(limit, natural[index])

    kept: list[int] = []
    for index in sorted(indexes, key=lambda index: (columns[index].rank, index)):
        taken = sum(least(other) + len(GAP) for other in kept) + least(index)
        if taken <= room or not columns[index].rank:
            kept.append(index)
    widths = {index: least(index) for index in kept}
    spare = room - sum(widths.values()) - len(GAP) * max(0, len(kept) - 1)
    for index in sorted(kept, key=lambda index: natural[index] - widths[index]):
        # those that lack least first, so that what they leave goes to the longest
        hungry = sum(natural[other] > widths[other] for other in kept)
        given = min(natural[index] - widths[index], max(0, spare) // max(1, hungry))
        widths[index] += given
        spare -= given
    return widths


def _row(
    columns: Sequence[Column], cells: Sequence[str], shown: Sequence[int], widths: dict[int, int]
) -> str:
    parts: list[str] = []
    for index in shown:
        cell = cells[index] if columns[index].is_id else shortened(cells[index], widths[index])
        padding = " " * max(0, widths[index] - columns_of(cell))
        parts.append(f"{padding}{cell}" if columns[index].align == "right" else f"{cell}{padding}")
    return GAP.join(parts).rstrip()


def fields(pairs: Sequence[tuple[str, object]], *, width: int, label_width: int = 12) -> list[str]:
    """Return ``Label       text`` lines, long texts wrapped under themselves; pairs with None are left out."""
    lines: list[str] = []
    for label, value in pairs:
        if value is None:
            continue
        broken = wrapped(value, width=width - label_width)
        lines += [f"{label if not number else '':{label_width}}{line}" for number, line in enumerate(broken)]
    return lines


def wrapped(value: object, *, width: int, indent: str = "") -> list[str]:
    """Return the lines of a value, printable and broken at ``width`` columns, with ``indent`` before each.

    The first characters of a line stay: indentation is part of code and tracebacks. Ids and paths are broken only
    where they are longer than a line.
    """
    room = max(10, width - len(indent))
    lines: list[str] = []
    for line in plain_lines(value) or [""]:
        if columns_of(line) <= room:
            lines.append(f"{indent}{line}".rstrip())
            continue
        lead = line[: len(line) - len(line.lstrip())][: room // 2]
        narrow = room * len(line) // columns_of(line)  # wide characters: fewer of them a line
        wrap = textwrap.TextWrapper(
            width=max(5, narrow), subsequent_indent=lead, break_on_hyphens=False, drop_whitespace=True
        )
        lines += [f"{indent}{part}".rstrip() for part in wrap.wrap(line)]
    return lines


def age(seconds: float) -> str:
    """Return how long ago in one unit: ``5s``, ``12m``, ``3h``, ``4d``."""
    passed = max(0.0, seconds)
    for limit, unit, name in ((60, 1, "s"), (3600, 60, "m"), (86_400, 3600, "h")):
        if passed < limit:
            return f"{int(passed // unit)}{name}"
    return f"{int(passed // 86_400)}d"


def duration(seconds: float) -> str:
    """Return how long something took: ``0.4ms``, ``350ms``, ``2.35s``, ``12.3s``, ``12m34s``, ``3h05m``, ``2d04h``."""
    passed = max(0.0, seconds)
    if passed < 0.9995:
        return f"{passed * 1e3:.1f}ms" if 0.00005 <= passed < 0.00995 else f"{passed * 1e3:.0f}ms"
    if passed < 59.95:
        return f"{passed:.2f}s" if passed < 9.995 else f"{passed:.1f}s"
    whole = round(passed)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02}h"


def moment(seconds: float) -> str:
    """Return a Unix time as local date and time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def number(value: float | None) -> str:
    """Return a reward or metric in four digits, ``-`` where there is none."""
    return NOTHING if value is None else f"{value:.4g}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return ``1 span``, ``2 spans``, ``1,234 spans``."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
