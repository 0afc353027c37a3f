"""Long texts within JSON, stored once: images, system prompts, the messages of a growing conversation.

In a stored JSON value a text of ``LONG`` characters or more is cut into pieces. Long pieces stand once, by hash, in the
``blob`` table; what is left in the JSON is ``MARK`` and then, with ``MARK`` between them, short pieces and numbers of
blobs in turn. A text that has ``MARK`` in it goes to the table whole, so that nothing a user writes looks like that.
The cut depends on the text alone: equal texts are equal where they are stored. Each blob counts its references.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import orjson

from agl.store.cutting import has_marks, is_blob, pieces_of
from agl.store.packed import MARK, unpack

HASH_BYTES = 16
COMPRESSED, PLAIN = b"z", b"p"
"""First byte of a blob's content: what follows is UTF-8 as it is, or compressed by zlib."""
MAX_COMPRESSED_SHARE = 0.9
"""Content that zlib makes less than a tenth shorter is kept as it is, which is faster to read."""

Row = tuple[Any, ...]


def stow(db: sqlite3.Connection, values: Sequence[Any]) -> list[Any]:
    """Return JSON values with references in place of long texts, which are in the blob table then."""
    cuts = _cuts(values)
    if not cuts:
        return list(values)
    numbers: dict[str, int] = {}
    for piece in _long_pieces(cuts.values()):
        numbers[piece] = _found(db, piece) or _added(db, piece)
    found: Counter[str] = Counter()
    templates = {text: _template(pieces, numbers) for text, pieces in cuts.items()}
    stowed = [_replaced(value, templates, found) for value in values]
    uses: Counter[int] = Counter()
    for text, times in found.items():
        for piece in _long_pieces([cuts[text]], distinct=False):
            uses[numbers[piece]] += times
    db.executemany(
        "UPDATE blob SET uses = uses + ? WHERE blob = ?", [(times, number) for number, times in uses.items()]
    )
    return stowed


def stowed_already(db: sqlite3.Connection, value: Any) -> tuple[Any] | None:
    """Return (the value as ``stow`` would make it,), None when nothing that is stored can be equal to it."""
    cuts = _cuts([value])
    numbers: dict[str, int] = {}
    for piece in _long_pieces(cuts.values()):
        number = _found(db, piece)
        if number is None:
            return None
        numbers[piece] = number
    templates = {text: _template(pieces, numbers) for text, pieces in cuts.items()}
    return (_replaced(value, templates, Counter()),)


def filled(db: sqlite3.Connection, values: Sequence[Any]) -> list[Any]:
    """Return JSON values with the texts in place of the references: the inverse of ``stow``, in one query."""
    wanted = {number for value in values for number in _references(value)}
    if not wanted:
        return list(values)
    rows = db.execute(
        "SELECT blob, content FROM blob_content WHERE blob IN (SELECT value FROM json_each(?))",
        (orjson.dumps(sorted(wanted)).decode("ascii"),),
    )
    contents = {number: _text(content) for number, content in rows}
    return [_filled(value, contents) for value in values]


def filled_rows(
    db: sqlite3.Connection,
    rows: Sequence[Row],
    columns: Sequence[int],
    *,
    packed: tuple[int, int] | None = None,
) -> Sequence[Row]:
    """Return rows in which JSON texts with references are ``(value,)`` with the references filled; see ``json_value``.

    Args:
        db: the connection, in the transaction that read the rows.
        rows: the rows.
        columns: those that are JSON text or None.
        packed: the column of attributes, and the one of what is packed of them.
    """
    places: list[tuple[int, int]] = []
    values: list[Any] = []
    for index, row in enumerate(rows):
        for column in columns:
            text = row[column]
            if text is not None and MARK in text:
                places.append((index, column))
                value = orjson.loads(text)
                if packed is not None and column == packed[0] and row[packed[1]] is not None:
                    unpack(value, row[packed[1]])
                values.append(value)
    if not places:
        return rows
    new = [list(row) for row in rows]
    for (index, column), value in zip(places, filled(db, values), strict=True):
        new[index][column] = (value,)
    return [tuple(row) for row in new]


def json_value(stored: str | tuple[Any]) -> Any:
    """Return the value of a JSON column of ``filled_rows``."""
    return stored[0] if isinstance(stored, tuple) else orjson.loads(stored)


def release(db: sqlite3.Connection, texts: Iterable[str | None]) -> None:
    """Forget the references of JSON texts that are deleted, and the blobs that were only theirs."""
    uses: Counter[int] = Counter()
    for text in texts:
        if text is not None and MARK in text:
            uses.update(_references(orjson.loads(text)))
    for number, times in uses.items():
        left = db.execute(
            "UPDATE blob SET uses = uses - ? WHERE blob = ? RETURNING uses", (times, number)
        ).fetchone()
        if left is not None and left[0] <= 0:
            db.execute("DELETE FROM blob WHERE blob = ?", (number,))
            db.execute("DELETE FROM blob_content WHERE blob = ?", (number,))


def _cuts(values: Iterable[Any]) -> dict[str, list[str]]:
    """Return the pieces of every text within the values that must be stowed."""
    cuts: dict[str, list[str]] = {}
    for text in _texts(values):
        if text not in cuts and has_marks(text):
            cuts[text] = pieces_of(text)
    return cuts


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts within a JSON value, keys apart."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():  # pyright: ignore[reportUnknownVariableType]
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _texts(one)


def _replaced(value: Any, templates: dict[str, str], found: Counter[str]) -> Any:
    if isinstance(value, str):
        template = templates.get(value)
        if template is None:
            return value
        found[value] += 1
        return template
    if isinstance(value, dict):
        return {key: _replaced(one, templates, found) for key, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [_replaced(one, templates, found) for one in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _filled(value: Any, contents: dict[int, str]) -> Any:
    if isinstance(value, str):
        if not value.startswith(MARK):
            return value
        parts = value[1:].split(MARK)
        parts[1::2] = [contents[int(number)] for number in parts[1::2]]
        return "".join(parts)
    if isinstance(value, dict):
        return {key: _filled(one, contents) for key, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_filled(one, contents) for one in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _references(value: Any) -> Iterator[int]:
    """Yield the number of each reference within a stored value. The place of a packed attribute is none."""
    for text in _texts(value):
        if text.startswith(MARK):
            yield from map(int, text[1:].split(MARK)[1::2])


def _long_pieces(cuts: Iterable[list[str]], *, distinct: bool = True) -> Iterable[str]:
    pieces = [piece for pieces in cuts for piece in pieces if is_blob(piece)]
    return dict.fromkeys(pieces) if distinct else pieces


def _template(pieces: list[str], numbers: dict[str, int]) -> str:
    parts = [""]  # short pieces at even places, numbers at odd ones
    for piece in pieces:
        if is_blob(piece):
            parts += (str(numbers[piece]), "")
        else:
            parts[-1] += piece
    return MARK + MARK.join(parts)


def _hash(piece: str) -> bytes:
    return blake2b(piece.encode("utf-8"), digest_size=HASH_BYTES).digest()


def _found(db: sqlite3.Connection, piece: str) -> int | None:
    row = db.execute("SELECT blob FROM blob WHERE hash = ?", (_hash(piece),)).fetchone()
    return None if row is None else row[0]


def _added(db: sqlite3.Connection, piece: str) -> int:
    number = db.execute("INSERT INTO blob (hash, uses) VALUES (?, 0)", (_hash(piece),)).lastrowid
    assert number is not None, "an insert has a row"
    db.execute("INSERT INTO blob_content VALUES (?, ?)", (number, _content(piece)))
    return number


def _content(piece: str) -> bytes:
    plain = piece.encode("utf-8")
    compressed = zlib.compress(plain, 1)
    if len(compressed) <= MAX_COMPRESSED_SHARE * len(plain):
        return COMPRESSED + compressed
    return PLAIN + plain


def _text(content: bytes) -> str:
    data = content[1:]
    return (zlib.decompress(data) if content[:1] == COMPRESSED else data).decode("utf-8")
