from __future__ import annotations

from typing import Any

import pytest

from agl.store.otlp.owner import Owner
from agl.store.otlp.reading import (
    LargeRequestError,
    SpanReading,
    event_of,
    extended,
    scope_attributes,
    status_of,
)
from agl.types import SpanStatus

TRACE, SPAN = "a" * 32, "b" * 16


def add(reading: SpanReading, resource: dict[str, Any] | None = None, **changes: Any) -> None:
    span: dict[str, Any] = {
        "trace_id": TRACE,
        "span_id": SPAN,
        "parent_id": "",
        "name": "n",
        "kind": 1,
        "status": SpanStatus(),
        "attributes": {},
        "events": (),
        "links": (),
        "start_time_ns": 5,
        "end_time_ns": 6,
    }
    reading.add(reading.source(resource or {}), **(span | changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trace_id": "ab"}, "trace_id"),
        ({"trace_id": "0" * 32}, "trace_id"),
        ({"trace_id": ""}, "trace_id"),
        ({"span_id": "0" * 16}, "span_id"),
        ({"span_id": TRACE}, "span_id"),
        ({"parent_id": "ab"}, "parent_span_id"),
        ({"start_time_ns": 1 << 63}, "2262"),
        ({"end_time_ns": (1 << 64) - 1}, "2262"),
        ({"attributes": {"agl.rollout_id": []}}, "agl.rollout_id"),
    ],
)
def test_a_span_that_cannot_be_kept_is_counted_with_its_reason(changes: dict[str, Any], reason: str) -> None:
    reading = SpanReading()
    add(reading, **changes)
    add(reading)
    assert len(reading.spans) == 1
    assert reading.rejected.total() == 1
    assert reason in next(iter(reading.rejected))


def test_no_end_and_no_parent_are_none() -> None:
    reading = SpanReading()
    add(reading, parent_id="0" * 16, end_time_ns=0)
    assert (reading.spans[0].parent_id, reading.spans[0].end_time_ns) == (None, None)


def test_span_then_resource_then_headers_name_the_attempt() -> None:
    reading = SpanReading(named=Owner("head", "at-head"))
    add(reading)
    add(reading, {"agl.rollout_id": "resource", "agl.attempt_id": "at-resource", "host": "h"})
    add(
        reading,
        {"agl.rollout_id": "resource"},
        attributes={"agl.rollout_id": "span", "agl.attempt_id": "at-span"},
    )
    add(
        reading,
        {"agl.rollout_id": "resource", "agl.attempt_id": "at-resource"},
        attributes={"agl.attempt_id": "x"},
    )
    assert [(span.rollout_id, span.attempt_id) for span in reading.spans] == [
        ("head", "at-head"),
        ("resource", "at-resource"),
        ("span", "at-span"),
        ("resource", "x"),
    ]
    assert reading.spans[1].resource == {"host": "h"}


def test_a_scoped_token_attributes_what_names_nobody_and_rejects_the_rest() -> None:
    reading = SpanReading(allowed=Owner("ro", "at"))
    add(reading)
    add(reading, attributes={"agl.rollout_id": "ro"})
    add(reading, attributes={"agl.rollout_id": "other"})
    add(reading, {"agentlightning.attempt_id": "other"})
    assert [(span.rollout_id, span.attempt_id) for span in reading.spans] == [("ro", "at")] * 2
    assert reading.rejected == {
        "the token is for another rollout than 'other'": 1,
        "the token is for another attempt than 'other'": 1,
    }


def test_all_spans_of_a_resource_that_cannot_be_attributed_are_rejected() -> None:
    reading = SpanReading()
    add(reading, {"agl.rollout_id": 1.5})
    assert reading.rejected == {"of the resource, agl.rollout_id is neither text nor a whole number": 1}


def test_too_many_spans_are_refused() -> None:
    reading = SpanReading(max_parts=2)
    reading.expect(2)
    with pytest.raises(LargeRequestError, match="more than 2 spans, scopes and resources"):
        reading.expect(1)


def test_too_many_values_are_refused_wherever_they_are() -> None:
    inside = {"a": [1, {"b": 2}]}  # a, two items, b: 4
    reading = SpanReading(max_values=9)
    add(reading, attributes={"x": 1, "y": inside})
    with pytest.raises(LargeRequestError, match="more than 9 attributes"):
        add(reading, events=(event_of("e", 1, {"c": [1], "d": inside}),))  # c, its item, d, its 4: 7


def test_a_scope_becomes_attributes_that_the_spans_own_override() -> None:
    reading = SpanReading()
    assert scope_attributes("", "", {}) == {}
    scope = scope_attributes("lib", "2", {"short": True})
    assert scope == {"otel.scope.name": "lib", "otel.scope.version": "2", "otel.scope.short": True}
    add(reading)
    assert reading.spans[0].attributes == {}


def test_what_the_record_has_no_field_for_becomes_attributes() -> None:
    assert extended({}) == {}
    assert extended({"a": 1}, dropped=1, dropped_events=2, dropped_links=3, trace_state="k=v") == {
        "a": 1,
        "otel.dropped_attributes_count": 1,
        "otel.dropped_events_count": 2,
        "otel.dropped_links_count": 3,
        "w3c.tracestate": "k=v",
    }


@pytest.mark.parametrize(
    ("code", "message", "status"),
    [
        (0, "", SpanStatus()),
        (1, "", SpanStatus(code="ok")),
        (2, "broke", SpanStatus(code="error", description="broke")),
        (0, "odd", SpanStatus(code="unset", description="odd")),
        (7, "", SpanStatus()),
        (-1, "", SpanStatus()),
    ],
)
def test_statuses(code: int, message: str, status: SpanStatus) -> None:
    assert status_of(code, message) == status


@pytest.mark.parametrize(
    ("number", "kind"),
    list(enumerate(["internal", "internal", "server", "client", "producer", "consumer", "internal"])),
)
def test_kinds(number: int, kind: str) -> None:
    reading = SpanReading()
    add(reading, kind=number)
    assert reading.spans[0].kind == kind


def test_an_events_time_is_cut_to_what_a_store_holds() -> None:
    assert event_of("e", (1 << 64) - 1, {}).time_ns == (1 << 63) - 1
