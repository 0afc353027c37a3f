"""Records to JSON and back."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from agl.errors import InvalidRequestError, NotFoundError, StoreError
from agl.store import wire
from agl.store.client import bodies
from agl.types import (
    LLM,
    AttemptQuery,
    Rollout,
    RolloutConfig,
    RolloutQuery,
    RolloutRequest,
    Span,
    SpanEvent,
    SpanLink,
    SpanQuery,
    SpanStatus,
)

ROLLOUT = {"rollout_id": "r", "task": {"q": [1]}, "created_at": 5.0}
SMALL = Span(span_id="1", trace_id="t", name="n", start_time_ns=1)


def test_a_span_with_everything_is_read_as_it_was() -> None:
    span = Span(
        span_id="1",
        trace_id="t",
        parent_id="p",
        name="n",
        kind="client",
        status=SpanStatus(code="error", description="d"),
        attributes={"a": [1, None, {"b": "ü"}]},
        events=(SpanEvent(name="e", time_ns=1, attributes={"k": 1}),),
        links=(SpanLink(trace_id="t", span_id="2"),),
        resource={"service.name": "s"},
        start_time_ns=1,
        end_time_ns=2,
        rollout_id="r",
        attempt_id="a",
        sequence_id=3,
    )
    assert Span.model_validate_json(bodies.span_json(span)) == span
    assert Span.model_validate_json(bodies.span_json(SMALL)) == SMALL


def test_a_small_span_is_sent_small() -> None:
    sent = orjson.loads(bodies.span_json(SMALL))
    assert sent == {
        "span_id": "1", "trace_id": "t", "name": "n", "kind": "internal", "attributes": {}, "start_time_ns": 1,
    }  # fmt: skip


@pytest.mark.parametrize("value", [{1, 2}, 2**70, "\ud800", object(), {1: 2}, LLM(base_url="u", model="m")])
def test_what_is_not_json_is_refused_before_it_is_sent(value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"span 1 \(n\) is not JSON"):
        bodies.span_json(SMALL.model_copy(update={"attributes": {"a": value}}))
    with pytest.raises(InvalidRequestError, match="rollout r is not JSON"):
        bodies.rollout_json(RolloutRequest(task=value), "r")


def test_a_request_is_read_as_it_was() -> None:
    request = RolloutRequest(
        task=[1], config=RolloutConfig(max_attempts=2, retry_on=("timeout",)), priority=1
    )
    text = bodies.rollout_json(request, "ro-1")
    assert RolloutRequest.model_validate_json(text) == request.model_copy(update={"rollout_id": "ro-1"})


def test_fields_that_only_a_newer_server_knows_are_left_out() -> None:
    claim = {
        **ROLLOUT,
        "novel": 1,
        "config": {"max_attempts": 2, "novel": 1},
        "attempt": {
            "attempt_id": "a",
            "rollout_id": "r",
            "sequence_id": 1,
            "started_at": 1.0,
            "last_heartbeat_at": 1.0,
            "novel": {},
        },
    }
    (held,) = bodies.decoded(bodies.CLAIMS, orjson.dumps([claim]))
    assert held.held().rollout == Rollout(**ROLLOUT, config=RolloutConfig(max_attempts=2))
    page = bodies.decoded(
        bodies.ROLLOUT_PAGE, orjson.dumps({"items": [ROLLOUT], "next_cursor": "c", "total": 1})
    )
    assert (page.items, page.next_cursor) == ([Rollout(**ROLLOUT)], "c")
    kind = {"kind": "llm", "base_url": "u", "model": "m", "novel": 1}
    named = {"resources_id": "rs", "version": 1, "resources": {"llm": kind, "any": kind}, "created_at": 1.0}
    found = bodies.decoded(bodies.RESOURCES, orjson.dumps(named))
    assert found.resources["llm"] == LLM(base_url="u", model="m")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"rollout_id": "r"}', b"null"])
def test_an_answer_of_another_shape_is_a_store_error(body: bytes) -> None:
    with pytest.raises(StoreError, match="not what this version of agl expects"):
        bodies.decoded(bodies.ROLLOUT, body)


def test_a_long_list_is_cut_by_number_and_by_size() -> None:
    assert list(bodies.parts_within([])) == []
    assert list(bodies.parts_within([b"1"] * 3)) == [slice(0, 3)]
    many = list(bodies.parts_within([b"1"] * (wire.MAX_BATCH * 2 + 1)))
    assert [part.stop - part.start for part in many] == [wire.MAX_BATCH, wire.MAX_BATCH, 1]
    third = b"x" * (bodies.MAX_BODY_BYTES // 3 - 10)
    huge = b"x" * (bodies.MAX_BODY_BYTES * 2)
    assert list(bodies.parts_within([third] * 4 + [huge, b"1"])) == [
        slice(0, 3), slice(3, 4), slice(4, 5), slice(5, 6),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "quoted"), [("ro-1", "ro-1"), ("a/b", "a%2Fb"), ("ü ?#%", "%C3%BC%20%3F%23%25"), (".a", ".a")]
)
def test_an_id_is_one_segment_of_a_path(name: str, quoted: str) -> None:
    assert bodies.segment(name) == quoted


@pytest.mark.parametrize("name", ["", ".", "..", "\ud800"])
def test_what_can_be_no_id_is_not_found(name: str) -> None:
    with pytest.raises(NotFoundError):
        bodies.segment(name)


def test_a_query_becomes_parameters() -> None:
    query = SpanQuery(limit=5, name_prefix="", attributes={"a": "x&y"}, cursor="c=")
    assert bodies.target("/v1/spans", query) == (
        "/v1/spans?limit=5&cursor=c%3D&order=asc&name_prefix=&attributes=%7B%22a%22%3A%22x%26y%22%7D"
    )
    assert bodies.target("/p", {"a": None}) == "/p"
    assert bodies.target("/p", {"a": 1.5, "b": "+"}) == "/p?a=1.5&b=%2B"
    with pytest.raises(InvalidRequestError):
        bodies.target("/p", {"a": "\ud800"})


def test_a_filter_without_values_matches_nothing() -> None:
    assert bodies.matches_nothing(RolloutQuery(status=()))
    assert bodies.matches_nothing(AttemptQuery(status=()))
    assert not bodies.matches_nothing(RolloutQuery(status=("pending",)))
    assert not bodies.matches_nothing(SpanQuery(attributes={}))


def test_resources_are_checked_before_they_are_sent() -> None:
    text = bodies.resources_json(
        {"llm": LLM(base_url="u", model="m"), "n": 5}, run_id=None, resources_id="rs"
    )
    sent = wire.NewResources.model_validate_json(text)
    assert sent.resources == {"llm": LLM(base_url="u", model="m"), "n": 5}
    for wrong in ({"x": {1}}, {"x": {"kind": "llm", "modell": "m"}}):
        with pytest.raises(InvalidRequestError):
            bodies.resources_json(wrong, run_id=None, resources_id=None)
