"""Spans from decoded JSON whose every field is plainly right: what pydantic would make, in a fifth of the time.

Spans are most of what a store receives. One that is unusual in any way is left to pydantic, which reads it or says what
is wrong.
"""

from __future__ import annotations

from itertools import product
from types import NoneType
from typing import Any, cast, get_args

from agl.types import Span, SpanStatus
from agl.types.span import SpanKind, SpanStatusCode

_MISSING = object()
_UNSET = SpanStatus()
_FIELDS: dict[str, tuple[object, tuple[type, ...]]] = {
    "span_id": (_MISSING, (str,)),
    "trace_id": (_MISSING, (str,)),
    "parent_id": (None, (str, NoneType)),
    "name": (_MISSING, (str,)),
    "kind": ("internal", (str,)),
    "status": (_UNSET, (SpanStatus, dict)),
    "attributes": (_MISSING, (dict,)),
    "events": ((), (tuple, list)),
    "links": ((), (tuple, list)),
    "resource": (_MISSING, (dict,)),
    "start_time_ns": (_MISSING, (int,)),
    "end_time_ns": (None, (int, NoneType)),
    "rollout_id": (None, (str, NoneType)),
    "attempt_id": (None, (str, NoneType)),
    "sequence_id": (None, (int, NoneType)),
}
"""What stands for each field that is left out, and the types that are plainly right; in the order of the record."""
_DEFAULTS = {name: default for name, (default, _) in _FIELDS.items()}
_TYPES = frozenset(product(*(types for _, types in _FIELDS.values())))
_KINDS: frozenset[str] = frozenset(get_args(SpanKind))
_STATUS_CODES: frozenset[str] = frozenset(get_args(SpanStatusCode))
_MAX_ID = 64


def plain_span(value: object) -> Span | None:
    """Return the span that a JSON value is; None where that is not plain. The span takes over what the value holds."""
    if type(value) is not dict:
        return None
    fields: dict[str, Any] = {**_DEFAULTS, "attributes": {}, "resource": {}, **cast("dict[str, Any]", value)}
    if (*map(type, fields.values()),) not in _TYPES:  # with unknown fields there are too many
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


def _plain_status(value: dict[str, Any]) -> SpanStatus | None:
    fields: dict[str, Any] = {"code": "unset", "description": None, **value}
    code, description = fields["code"], fields["description"]
    if len(fields) > 2 or type(code) is not str or code not in _STATUS_CODES:
        return None
    return SpanStatus.trusted(fields) if description is None or type(description) is str else None
