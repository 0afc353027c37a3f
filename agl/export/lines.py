"""Records as lines of JSON, each with its kind under ``record``, and back.

A rollout's line has its attempts. The lines of a run and of a rollout stand before those of what belongs to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from agl.errors import ConfigError
from agl.types import RecordedRollout, Run, Span

Recorded = Run | RecordedRollout | Span
_KINDS: Mapping[str, type[Recorded]] = {"run": Run, "rollout": RecordedRollout, "span": Span}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def line_of(record: Recorded) -> bytes:
    """Return the record as one line, with the line break; equal records are equal lines."""
    kind = type(record)
    fields = record.__dict__
    ordered = kind.trusted(
        {name: fields[name] for name in kind.model_fields}
    )  # stores have an order of their own
    return b'{"record":"%s",%s\n' % (_NAMES[kind].encode(), ordered.model_dump_json().encode("utf-8")[1:])


def record_of(value: Mapping[str, Any], where: str) -> Recorded:
    """Return the record that a line's value is.

    Raises:
        ConfigError: it is none, naming ``where`` and the field.
    """
    kind = _KINDS.get(str(value.get("record")))
    if kind is None:
        raise ConfigError(
            f'{where}: no record: a line has "record": "run", "rollout" or "span", as agl export writes them'
        )
    fields = {name: one for name, one in value.items() if name != "record"}
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{where}: {place}: {first['msg']}") from error


def json_object(line: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object of a line.

    Raises:
        ConfigError: it is none.
    """
    try:
        value = json.loads(line.decode("utf-8"))
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: a {type(value).__name__} and not a JSON object")
    return value  # pyright: ignore[reportUnknownVariableType]
