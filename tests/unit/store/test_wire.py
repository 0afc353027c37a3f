import pytest
from pydantic import ValidationError

from agl.errors import AccessDeniedError, ConflictError, InvalidRequestError, NotFoundError, StoreError
from agl.store import wire
from agl.types import (
    Attempt,
    AttemptedRollout,
    Rollout,
    RolloutConfig,
    RolloutQuery,
    RolloutRequest,
    Span,
    SpanQuery,
)


def test_a_query_survives_the_trip_through_url_parameters():
    rollouts = RolloutQuery(
        rollout_ids=("a", "b"), status=("failed", "cancelled"), created_after=1.5, limit=7
    )
    spans = SpanQuery(attributes={"agl.agent": "writer", "n": 1}, name_prefix="chat ", order="desc")
    for query in (rollouts, spans):
        again = type(query).model_validate(wire.query_from(type(query), wire.parameters(query)))
        assert again == query


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("statuss", "failed")], "statuss is not a parameter"),
        ([("run_id", "a"), ("run_id", "b")], "run_id is given twice"),
    ],
)
def test_a_parameter_that_a_list_does_not_take_is_refused_by_name(pairs, message):
    with pytest.raises(InvalidRequestError, match=message):
        wire.query_from(RolloutQuery, pairs)


def test_attributes_that_are_no_json_are_refused():
    with pytest.raises(InvalidRequestError, match="attributes is not a JSON object"):
        wire.query_from(SpanQuery, [("attributes", "{")])


@pytest.mark.parametrize("error", [NotFoundError, ConflictError, InvalidRequestError, AccessDeniedError])
def test_an_error_crosses_the_wire_as_the_same_class(error):
    code = wire.code_of(error("why"))
    assert type(wire.error_from(code, "why")) is error


def test_an_error_code_of_a_newer_server_is_still_an_error():
    assert type(wire.error_from("novel", "why")) is StoreError


@pytest.mark.parametrize("name", ["a/b", "a\\b", "a b", "", "..", ".", "a\n", "\x7f", "x" * 201])
def test_an_id_that_does_not_fit_a_path_segment_is_refused(name):
    with pytest.raises(ValidationError):
        wire.NewWorker(worker_id=name)


@pytest.mark.parametrize("name", ["w-1", "ünï:x._@%", ".hidden", "x" * 200])
def test_any_other_id_is_fine(name):
    assert wire.NewWorker(worker_id=name).worker_id == name


def test_a_claim_is_the_rollout_with_its_attempt():
    rollout = Rollout(rollout_id="r", task=1, created_at=0.0)
    attempt = Attempt(attempt_id="a", rollout_id="r", sequence_id=1, started_at=0.0, last_heartbeat_at=0.0)
    held = AttemptedRollout(rollout=rollout, attempt=attempt)
    text = wire.ClaimedRollout.of(held).model_dump_json()
    assert wire.ClaimedRollout.model_validate_json(text).held() == held


def test_stored_spans_travel_as_their_numbers_and_only_those_that_differ_as_themselves():
    sent = [
        Span(span_id="1", trace_id="t", name="a", start_time_ns=1, rollout_id="r", attempt_id="at"),
        Span(span_id="2", trace_id="t", name="b", start_time_ns=2, attempt_id="at"),
        Span(span_id="3", trace_id="t", name="c", start_time_ns=3),
    ]
    stored = [
        sent[0].model_copy(update={"sequence_id": 7}),
        sent[1].model_copy(update={"sequence_id": 8, "rollout_id": "r"}),
        sent[2],
    ]
    answer = wire.StoredSpans.of(sent, stored)
    assert (answer.sequence_ids, list(answer.others)) == ((7, 8, None), ["1"])
    assert wire.StoredSpans.model_validate_json(answer.model_dump_json()).spans(sent) == stored


def test_nothing_that_a_caller_says_is_a_point_in_time() -> None:
    """So that clock differences between machines cannot matter: all times are the store's own."""
    said = [
        RolloutRequest,
        RolloutConfig,
        wire.Dequeue,
        wire.UndoDequeue,
        wire.Start,
        wire.Wait,
        wire.RolloutUpdate,
        wire.AttemptUpdate,
        wire.NewWorker,
        wire.Heartbeat,
    ]
    names = [name for record in said for name in record.model_fields]
    assert len(names) > 30
    assert [name for name in names if name.endswith(("_at", "_time", "lease", "deadline", "now"))] == []
