"""Spans from decoded JSON whose every field is plainly right: what pydantic would make, in a fifth of the time.

Spans are most of what a store receives. One that is unusual in any way is left to pydantic, which reads it or says what
is wrong.
"""

from __future__ import annotations

from functools import lru_cache
from types import NoneType
from typing import Any, cast

from agl.types import Span, SpanStatus

_MISSING = object()
_UNSET = SpanStatus()
_DEFAULTS: dict[str, object] = {
    "span_id": _MISSING,
    "trace_id": _MISSING,
    "parent_id": None,
    "name": _MISSING,
    "kind": "internal",
    "status": _UNSET,
    "attributes": _MISSING,
    "events": (),
    "links": (),
    "resource": _MISSING,
    "start_time_ns": _MISSING,
    "end_time_ns": None,
    "rollout_id": None,
    "attempt_id": None,
    "sequence_id": None,
}
"""What stands for each field that is left out, in the order of the record; for the dicts a new one does."""
_TYPES: tuple[tuple[type, ...], ...] = (
    (str,),
    (str,),
    (str, NoneType),
    (str,),
    (str,),
    (SpanStatus, dict),
    (dict,),
    (tuple, list),
    (tuple, list),
    (dict,),
    (int,),
    (int, NoneType),
    (str, NoneType),
    (str, NoneType),
    (int, NoneType),
)
"""The types of these fields that are plainly right."""
_KINDS = frozenset(("internal", "server", "client", "producer", "consumer"))
_STATUS_CODES = frozenset(("unset", "ok", "error"))
_MAX_ID = 64


def plain_span(value: object) -> Span | None:
    """Return the span that a JSON value is; None where that is not plain. The span takes over what the value holds."""
    if type(value) is not dict:
        return None
    fields: dict[str, Any] = {**_DEFAULTS, "attributes": {}, "resource": {}, **cast("dict[str, Any]", value)}
    if not _are_plain((*map(type, fields.values()),)):
        return None
    if not 0 < len(fields["span_id"]) <= _MAX_ID or not 0 < len(fields["trace_id"]) <= _MAX_ID:
        return None
    if fields["kind"] not in _KINDS or fields["events"] or fields["links"]:
        return None
    fields["events"] = fields["links"] = ()
    if fields["status"] is not _UNSET:
        status = _plain_status(fields["status"])
        if status is None:
            return None
        fields["status"] = status
    return Span.trusted(fields)


@lru_cache(maxsize=1024)
def _are_plain(types: tuple[type, ...]) -> bool:
    """Whether the fields have these types; with an unknown field there are too many. Most spans are of a few kinds."""
    return len(types) == len(_TYPES) and all(one in plain for one, plain in zip(types, _TYPES, strict=True))


def _plain_status(value: dict[str, Any]) -> SpanStatus | None:
    fields: dict[str, Any] = {"code": "unset", "description": None, **value}
    code, description = fields["code"], fields["description"]
    if len(fields) > 2 or type(code) is not str or code not in _STATUS_CODES:
        return None
    return SpanStatus.trusted(fields) if description is None or type(description) is str else None
