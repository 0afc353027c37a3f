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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any

import orjson

from agl.store.cutting import has_marks, is_blob, pieces_of
from agl.store.packed import MARK, unpack

HASH_BYTES = 16
HASHES_AT_ONCE = 64
"""Hashes looked up, and rows added, in one statement; each number of them is a statement of its own to prepare."""
COMPRESSED, PLAIN = b"z", b"p"
"""First byte of a blob's content: what follows is UTF-8 as it is, or compressed by zlib."""
MAX_COMPRESSED_SHARE = 0.9
"""Content that zlib makes less than a tenth shorter is kept as it is, which is faster to read."""

_ADD_USES = "UPDATE blob SET uses = uses + ? WHERE blob IN (SELECT value FROM json_each(?))"
Row = tuple[Any, ...]


def stow(db: sqlite3.Connection, values: Sequence[Any]) -> list[Any]:
    """Return JSON values with references in place of long texts, which are in the blob table then."""
    templates = stow_texts(db, Counter(filter(has_marks, _texts(values))))
    return [_replaced(value, templates) for value in values] if templates else list(values)


def stow_texts(db: sqlite3.Connection, times: Mapping[str, int]) -> dict[str, str]:
    """Return what stands for each long text, given with how often that is; they are in the blob table then."""
    if not times:
        return {}
    cuts = {text: pieces_of(text) for text in times}
    uses: Counter[str] = Counter()
    for text, pieces in cuts.items():
        for piece in filter(is_blob, pieces):
            uses[piece] += times[text]
    hashes = _hashes(cuts.values())
    numbers = _known(db, hashes)
    by_times: dict[int, list[int]] = {}
    for piece, number in numbers.items():
        by_times.setdefault(uses[piece], []).append(number)
    for more, used in by_times.items():
        db.execute(_ADD_USES, (more, json_numbers(used)))
    numbers |= _added(db, [(piece, hashes[piece], uses[piece]) for piece in hashes if piece not in numbers])
    return {text: _template(pieces, numbers) for text, pieces in cuts.items()}


def stowed_already(db: sqlite3.Connection, value: Any) -> tuple[Any] | None:
    """Return (the value as ``stow`` would make it,), None when nothing that is stored can be equal to it."""
    cuts = _cuts([value])
    hashes = _hashes(cuts.values())
    numbers = _known(db, hashes)
    if len(numbers) < len(hashes):
        return None
    templates = {text: _template(pieces, numbers) for text, pieces in cuts.items()}
    return (_replaced(value, templates),)


def filled(db: sqlite3.Connection, values: Sequence[Any]) -> list[Any]:
    """Return JSON values with the texts in place of the references: the inverse of ``stow``, in one query."""
    wanted = {number for value in values for number in _references(value)}
    if not wanted:
        return list(values)
    rows = db.execute(
        "SELECT blob, content FROM blob_content WHERE blob IN (SELECT value FROM json_each(?))",
        (json_numbers(wanted),),
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


def _replaced(value: Any, templates: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return templates.get(value, value)
    if isinstance(value, dict):
        return {key: _replaced(one, templates) for key, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [_replaced(one, templates) for one in value]  # pyright: ignore[reportUnknownVariableType]
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


def json_numbers(numbers: Iterable[int]) -> str:
    """Return numbers for ``IN (SELECT value FROM json_each(?))``."""
    return orjson.dumps(sorted(numbers)).decode("ascii")


def _hashes(cuts: Iterable[list[str]]) -> dict[str, bytes]:
    """Return the hash of each piece that is a blob."""
    pieces = dict.fromkeys(piece for pieces in cuts for piece in pieces if is_blob(piece))
    return {piece: blake2b(piece.encode("utf-8"), digest_size=HASH_BYTES).digest() for piece in pieces}


def _template(pieces: list[str], numbers: dict[str, int]) -> str:
    parts = [""]  # short pieces at even places, numbers at odd ones
    for piece in pieces:
        if is_blob(piece):
            parts += (str(numbers[piece]), "")
        else:
            parts[-1] += piece
    return MARK + MARK.join(parts)


def _known(db: sqlite3.Connection, hashes: dict[str, bytes]) -> dict[str, int]:
    """Return the numbers of the pieces that are stored."""
    wanted = list(hashes.values())
    stored: dict[bytes, int] = {}
    for start in range(0, len(wanted), HASHES_AT_ONCE):
        part = wanted[start : start + HASHES_AT_ONCE]
        marks = ",".join("?" * len(part))
        stored.update(db.execute(f"SELECT hash, blob FROM blob WHERE hash IN ({marks})", part).fetchall())
    return {piece: stored[digest] for piece, digest in hashes.items() if digest in stored}


def _added(db: sqlite3.Connection, new: Sequence[tuple[str, bytes, int]]) -> dict[str, int]:
    """Store pieces, given with their hashes and uses; return their numbers."""
    if not new:
        return {}
    first = db.execute("SELECT coalesce(max(blob), 0) + 1 FROM blob").fetchone()[0]
    numbers = {piece: first + index for index, (piece, _, _) in enumerate(new)}
    for start in range(0, len(new), HASHES_AT_ONCE):
        part = new[start : start + HASHES_AT_ONCE]
        rows = [(numbers[piece], bytearray(digest), uses) for piece, digest, uses in part]
        marks = ",".join(["(?,?,?)"] * len(rows))
        db.execute(f"INSERT INTO blob (blob, hash, uses) VALUES {marks}", [*chain.from_iterable(rows)])
        contents = [(numbers[piece], _content(piece)) for piece, _, _ in part]
        marks = ",".join(["(?,?)"] * len(contents))
        db.execute(
            f"INSERT INTO blob_content (blob, content) VALUES {marks}", [*chain.from_iterable(contents)]
        )
    return numbers


def _content(piece: str) -> bytearray:
    """A bytearray, for ``sqlite3`` looks for an adapter of ``bytes``."""
    plain = piece.encode("utf-8")
    compressed = zlib.compress(plain, 1)
    if len(compressed) <= MAX_COMPRESSED_SHARE * len(plain):
        return bytearray(COMPRESSED + compressed)
    return bytearray(PLAIN + plain)


def _text(content: bytes) -> str:
    data = content[1:]
    return (zlib.decompress(data) if content[:1] == COMPRESSED else data).decode("utf-8")
