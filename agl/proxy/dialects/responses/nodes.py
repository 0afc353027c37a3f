"""JSON nodes from outside, read as what they should be: anything else counts as empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def object_of(value: object) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def objects_of(value: object) -> list[Mapping[str, Any]]:
    """Return the objects of a list."""
    entries = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, Any]", entry) for entry in entries if isinstance(entry, Mapping)]


def text_of(value: object) -> str:
    """Return the value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def number_of(value: object) -> int:
    """Return the value as a whole number if it is a number, else 0."""
    return int(value) if isinstance(value, int | float) else 0
