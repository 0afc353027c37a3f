"""Long texts in pieces, so that what repeats in them is stored once: images, system prompts, growing conversations.
Pure.
"""

from __future__ import annotations

import re

from agl.store.packed import MARK

LONG = 1024
"""Characters from which a text, and a piece of one, is stored apart. Part of the schemas: another number is a new
version."""
LITERAL = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
"""A string within JSON text."""


def has_marks(text: str) -> bool:
    """Return whether JSON text may hold what must be stowed, or what was."""
    return len(text) >= LONG or MARK in text


def is_blob(piece: str) -> bool:
    """Return whether a piece is stored apart; one with ``MARK`` in it is, so that nothing a user writes looks like
    ours.
    """
    return len(piece) >= LONG or MARK in piece


def pieces_of(text: str) -> list[str]:
    """Return a text that has marks in pieces: whole if it has ``MARK`` itself, else cut."""
    return [text] if MARK in text else cut(text)


def cut(text: str) -> list[str]:
    """Return a text in pieces: JSON text at its long strings, and from its beginning in stretches of ``LONG``.

    A conversation that grows at its end keeps its first pieces, so that each of them is stored once.
    """
    if text[:1] not in ("[", "{"):
        return [text]
    pieces: list[str] = []
    start = 0
    for literal in LITERAL.finditer(text):
        begin, end = literal.start() + 1, literal.end() - 1
        if end - begin >= LONG:
            pieces += (text[start:begin], text[begin:end])
            start = end
        elif end + 1 - start >= LONG:
            pieces.append(text[start : end + 1])
            start = end + 1
    pieces.append(text[start:])
    return pieces
