"""Any Python value as plain JSON, for what goes onto spans. Never raises; what JSON cannot say becomes text.

Fields that their owner keeps out of ``repr`` (keys, passwords) are left out here too.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, cast

from pydantic import BaseModel

from agl.types import Json

MAX_DEPTH = 32
MAX_TEXT = 2000
"""Characters of the text that stands for an object JSON cannot say."""
_INT64 = 1 << 63


def plain(value: object, depth: int = 0) -> Json:
    """Return ``value`` as None, bool, int, float, str, list or dict of these."""
    if value is None or isinstance(value, bool | str):
        return clean_text(value) if isinstance(value, str) else value
    if isinstance(value, Enum):
        return plain(value.value, depth + 1)
    if isinstance(value, int):
        return int(value) if -_INT64 <= value < _INT64 else str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth >= MAX_DEPTH:
        return as_text(value)
    return _plain_container(value, depth + 1)


def clean_text(text: str) -> str:
    """Return text that UTF-8 can say: half characters (lone surrogates) become question marks."""
    return str(text) if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def json_text(value: object) -> str:
    """Return ``value`` as JSON text."""
    return json.dumps(plain(value), ensure_ascii=False)


def as_text(value: object) -> str:
    """Return a bounded ``repr``; an object whose ``repr`` fails is named by its class."""
    shortener = reprlib.Repr()
    shortener.maxother = shortener.maxstring = MAX_TEXT
    return clean_text(shortener.repr(value))


def _plain_container(value: object, depth: int) -> Json:
    if isinstance(value, Mapping):
        return {_key(key): plain(item, depth) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple | Set):
        return [plain(item, depth) for item in cast("list[object]", value)]
    if isinstance(value, BaseModel):
        shown = {name for name, info in type(value).model_fields.items() if info.repr}
        return {
            name: plain(getattr(value, name), depth) for name in type(value).model_fields if name in shown
        }
    if is_dataclass(value) and not isinstance(value, type):
        return {
            item.name: plain(getattr(value, item.name, None), depth) for item in fields(value) if item.repr
        }
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    number = cast("Any", value)
    if hasattr(value, "__array__") and getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return plain(number.item(), depth)
    return as_text(value)


def _key(key: object) -> str:
    return clean_text(key) if isinstance(key, str) else as_text(key)
