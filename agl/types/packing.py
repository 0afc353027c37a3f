"""Token ids and logprobs as compact text: base64 of little-endian int32 and float32, 5.4 bytes a number.

Exact for every int32; a logprob is rounded to float32, which is what engines compute in.
"""

from __future__ import annotations

import base64
import struct
import sys
from array import array
from binascii import b2a_base64
from collections.abc import Iterable


def packed_ids(ids: Iterable[int]) -> str:
    """Return token ids as base64 little-endian int32. OverflowError outside int32."""
    numbers = tuple(ids)
    try:
        return _text(struct.pack(f"{len(numbers)}i", *numbers))
    except struct.error:
        return _text(array("i", numbers).tobytes())  # says what is wrong


def packed_floats(values: Iterable[float]) -> str:
    """Return floats as base64 little-endian float32."""
    numbers = tuple(values)
    try:
        return _text(struct.pack(f"{len(numbers)}f", *numbers))
    except struct.error:
        return _text(array("f", numbers).tobytes())  # says what is wrong


def ids_from_packed(text: str) -> list[int]:
    """Return the ids that ``packed_ids`` packed. ValueError when the text is not such."""
    numbers: array[int] = array("i")
    numbers.frombytes(_bytes(text))
    return numbers.tolist()


def floats_from_packed(text: str) -> list[float]:
    """Return the floats that ``packed_floats`` packed. ValueError when the text is not such."""
    numbers: array[float] = array("f")
    numbers.frombytes(_bytes(text))
    return numbers.tolist()


def _text(native: bytes) -> str:
    return b2a_base64(_little_endian(native), newline=False).decode("ascii")


def _bytes(text: str) -> bytes:
    return _little_endian(base64.b64decode(text, validate=True))


def _little_endian(data: bytes) -> bytes:
    """The bytes with every 4-byte number reversed on a big-endian machine, unchanged on others."""
    if sys.byteorder == "little":
        return data
    swapped = array("i", data)
    swapped.byteswap()
    return swapped.tobytes()
