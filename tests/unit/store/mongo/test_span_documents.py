from __future__ import annotations

from typing import Any

import pytest

from agl.store.mongo.span_documents import constant_part, span_key, span_of, token
from agl.types import Span, SpanEvent, SpanLink, SpanStatus

TRACE = "ab" * 16


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (False, 0, False),
        ("1", 1, False),
        (None, "null", False),
        ({"a": 1, "b": [2.0]}, {"b": [2], "a": 1.0}, True),
        ([1, 2], [2, 1], False),
        (1e300, 10**300, False),
        (-0.0, 0, True),
        ("ä", "ä", True),
    ],
)
def test_tokens_are_equal_for_equal_json_values(one: Any, other: Any, equal: bool) -> None:
    assert (token("name", one) == token("name", other)) == equal
    assert token("name", one) != token("other", one)
    assert -(2**63) <= token("name", one) < 2**63


def test_a_span_comes_back_from_its_document_as_it_was() -> None:
    span = Span(
        span_id="cd" * 8,
        trace_id=TRACE,
        parent_id="p",
        name="chat",
        kind="client",
        status=SpanStatus(code="error", description="no"),
        attributes={"a.b": 1, "$c": {"d.e": None}},
        events=(SpanEvent(name="e", time_ns=1, attributes={"$x": "y"}),),
        links=(SpanLink(trace_id=TRACE, span_id="x"),),
        resource={"service.name": "s"},
        start_time_ns=2**62,
        end_time_ns=2**62 + 1,
        rollout_id="ro",
        attempt_id="at",
        sequence_id=4,
    )
    pieces: dict[str, str] = {}
    owner = {"rollout_id": "ro", "attempt_id": "at", "number": 1, "sequence_id": 4}
    assert span_of(constant_part(span, pieces) | owner, pieces) == span


def test_defaults_take_no_space() -> None:
    document = constant_part(Span(span_id="s", trace_id="t", name="n", start_time_ns=1), {})
    assert set(document) == {"_id", "trace_id", "name", "kind", "attributes", "start_time_ns"}


def test_two_pairs_of_ids_never_have_one_key() -> None:
    pairs = [("a", "bc"), ("ab", "c"), ("abc", ""), ("1:a", "b"), ("1", ":ab")]
    assert len({span_key(*pair) for pair in pairs}) == len(pairs)
