"""Token ids and logprobs as compact text: base64 of little-endian int32 and float32, 5.4 bytes a number.

Exact for every int32; a logprob is rounded to float32, which is what engines compute in.
"""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Iterable
from typing import Literal


def packed_ids(ids: Iterable[int]) -> str:
    """Return token ids as base64 little-endian int32. OverflowError outside int32."""
    return _packed("i", ids)


def packed_floats(values: Iterable[float]) -> str:
    """Return floats as base64 little-endian float32."""
    return _packed("f", values)


def ids_from_packed(text: str) -> list[int]:
    """Return the ids that ``packed_ids`` packed. ValueError when the text is not such."""
    return _unpacked("i", text).tolist()


def floats_from_packed(text: str) -> list[float]:
    """Return the floats that ``packed_floats`` packed. ValueError when the text is not such."""
    return _unpacked("f", text).tolist()


def _packed(code: Literal["i", "f"], values: Iterable[int] | Iterable[float]) -> str:
    numbers = array(code, values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode("ascii")


def _unpacked(code: Literal["i", "f"], text: str) -> array[int] | array[float]:
    numbers = array(code)
    numbers.frombytes(base64.b64decode(text, validate=True))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
