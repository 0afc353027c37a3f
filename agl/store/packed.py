"""Token ids and logprobs of recorded calls as raw bytes: half of what their base64 text takes, and less.

A span's packed attributes stand in one value, ``packed``, one behind the other; its JSON holds ``MARK``
and the place in their stead. An entry is the count of numbers (7 bits a byte, low ones first), a mask of the kept byte
planes and those planes: all first bytes, all second bytes and so on. Planes of zeros are left out, so an id below
65,536 takes 2 bytes and a logprob 4.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agl.types.attributes import PROMPT_TOKEN_IDS, RESPONSE_LOGPROBS, RESPONSE_TOKEN_IDS

MARK = "\x7f"
"""Begins what stands in JSON for something stored elsewhere. DEL is one byte in JSON and rare in text."""
PACKED_KEYS = (PROMPT_TOKEN_IDS, RESPONSE_TOKEN_IDS, RESPONSE_LOGPROBS)
"""How the attributes begin that are packed; further choices of a call carry ``.1``, ``.2``, ... behind the key."""
FIRST_CHOICE = frozenset(PACKED_KEYS)
NUMBER_BYTES = 4
_LAST_CHARACTERS = ("", "AQgw", "AEIMQUYcgkosw048")
"""With one or two bytes in base64's last group: its last character, which has no bits behind them."""


def pack(attributes: Mapping[str, Any]) -> tuple[dict[str, str], bytes | None]:
    """Return what stands for the packed attributes, by key, and their bytes. Any other text stays as it is.

    Further choices are packed where there is a first one, which makes this quick for spans that are no calls.
    """
    if FIRST_CHOICE.isdisjoint(attributes):
        return {}, None
    places: dict[str, str] = {}
    entries: list[bytes] = []
    for key in _packed_among(tuple(attributes)):
        value = attributes[key]
        entry = entry_from_text(value) if isinstance(value, str) else None
        if entry is not None:
            places[key] = f"{MARK}{len(entries)}"
            entries.append(entry)
    return places, b"".join(entries) if entries else None


@lru_cache(maxsize=256)
def _packed_among(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a span's keys that are packed. Most spans have the keys of the one before."""
    return tuple(key for key in keys if key.startswith(PACKED_KEYS))


def unpack(attributes: dict[str, Any], packed: bytes) -> None:
    """Put the packed attributes back in their places."""
    texts = texts_from_packed(packed)
    for key, value in attributes.items():
        if key.startswith(PACKED_KEYS) and isinstance(value, str):
            text = _at(texts, value)
            if text is not None:
                attributes[key] = text


def packed_text(packed: bytes | None, stored: str) -> str | None:
    """Return the attribute whose place is ``stored``, None where that is no place. An SQL function."""
    return None if packed is None else _at(texts_from_packed(packed), stored)


def entry_from_text(text: str) -> bytes | None:
    """Return base64 text of 4-byte numbers as an entry, None for any text that would not come back byte by byte."""
    try:
        data = a2b_base64(text, strict_mode=True)
    except (Base64Error, ValueError):
        return None
    size = len(data)
    if not size or size % NUMBER_BYTES or len(text) != (size + 2) // 3 * 4:  # padding too many passes there
        return None
    if size % 3 and text[size % 3 - 4] not in _LAST_CHARACTERS[size % 3]:
        return None
    count = size // NUMBER_BYTES
    zeros = bytes(count)
    mask = 0b1111
    first, second, third, fourth = data[::4], data[1::4], data[2::4], data[3::4]
    # One by one: a loop costs as much as the base64, and each recorded call has three of these.
    if first == zeros:
        first, mask = b"", mask - 1
    if second == zeros:
        second, mask = b"", mask - 2
    if third == zeros:
        third, mask = b"", mask - 4
    if fourth == zeros:
        fourth, mask = b"", mask - 8
    head = bytes((count, mask)) if count < 0x80 else _count_bytes(count) + bytes((mask,))
    return head + first + second + third + fourth


def texts_from_packed(packed: bytes) -> list[str]:
    """Return the texts of all entries."""
    texts: list[str] = []
    start = 0
    while start < len(packed):
        count, shift = 0, 0
        while True:
            byte = packed[start]
            start += 1
            count |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        mask = packed[start]
        start += 1
        data = bytearray(NUMBER_BYTES * count)
        for number in range(NUMBER_BYTES):
            if mask >> number & 1:
                data[number::NUMBER_BYTES] = packed[start : start + count]
                start += count
        texts.append(b2a_base64(data, newline=False).decode("ascii"))
    return texts


def _at(texts: list[str], stored: str) -> str | None:
    if stored[:1] != MARK or MARK in stored[1:]:
        return None
    return texts[int(stored[1:])]


def _count_bytes(count: int) -> bytes:
    if count < 0x80:
        return count.to_bytes()
    parts = bytearray()
    while count >= 0x80:
        parts.append(count & 0x7F | 0x80)
        count >>= 7
    parts.append(count)
    return bytes(parts)
