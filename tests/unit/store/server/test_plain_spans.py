"""The quick way reads a span as pydantic does, or leaves it to pydantic."""

from __future__ import annotations

from typing import Any, get_args

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from agl.store.server.plain_spans import plain_span
from agl.types import Span
from agl.types.span import SpanKind, SpanStatusCode

SPAN = TypeAdapter(Span)
LEAST: dict[str, Any] = {"span_id": "b", "trace_id": "a", "name": "n", "start_time_ns": 1}
STATUS = {"code": "error", "description": "no"}
MOST: dict[str, Any] = {
    **LEAST,
    "parent_id": "c",
    "kind": "client",
    "status": STATUS,
    "attributes": {"a": [1, {"b": None}], "c": 0.5},
    "events": [],
    "links": [],
    "resource": {"host": "h"},
    "end_time_ns": 2,
    "rollout_id": "ro",
    "attempt_id": "at",
    "sequence_id": 3,
}
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=3)
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text(max_size=3), SCALARS, max_size=2)
ODD = st.sampled_from([STATUS, {"code": "ok"}, {"code": "off"}, {"name": "x"}, "server", "x" * 65, [], ""])


@pytest.mark.parametrize(
    "fields", [LEAST, MOST, {**LEAST, "status": {}}, {**LEAST, "status": {"code": "ok"}}]
)
def test_plain_spans_are_read_as_pydantic_reads_them(fields: dict[str, Any]) -> None:
    span = plain_span(fields)
    assert span == SPAN.validate_json(orjson.dumps(fields), strict=True)
    assert list(vars(span)) == list(Span.model_fields)


def test_every_kind_and_status_is_plain() -> None:
    for kind in get_args(SpanKind):
        assert plain_span({**LEAST, "kind": kind}) is not None
    for code in get_args(SpanStatusCode):
        assert plain_span({**LEAST, "status": {"code": code}}) is not None


@given(changes=st.dictionaries(st.sampled_from([*Span.model_fields, "other"]), VALUES | ODD, max_size=3))
def test_a_span_is_read_as_pydantic_reads_it_or_not_at_all(changes: dict[str, Any]) -> None:
    fields = {**LEAST, **changes}
    span = plain_span(fields)
    try:
        right = SPAN.validate_json(orjson.dumps(fields), strict=True)
    except ValidationError:
        assert span is None
    else:
        assert span is None or (span == right and repr(span) == repr(right))  # 1 and True are equal


@pytest.mark.parametrize("value", [None, 1, "span", [LEAST], {}])
def test_what_is_no_span_is_left(value: object) -> None:
    assert plain_span(value) is None


def test_spans_do_not_share_their_dicts() -> None:
    one, other = plain_span(LEAST), plain_span(LEAST)
    assert one is not None
    assert other is not None
    assert one.attributes is not other.attributes
    assert one.resource is not other.resource
