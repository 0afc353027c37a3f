from __future__ import annotations

import pytest

from agl.errors import InvalidRequestError
from agl.store.mongo.documents import (
    NEVER,
    durations,
    find_attempt,
    is_due,
    json_text,
    latest_attempt,
    pending_document,
    placed_attempts,
    rollout_of,
    slot_prefix,
    workers_of,
)
from agl.types import Rollout, RolloutConfig, RolloutRequest

PAST = {
    "attempt_id": "at-1",
    "number": 1,
    "position": 7,
    "worker_id": "w1",
    "status": "failed",
    "started_at": 1.0,
    "heard_at": 2.0,
    "finished_at": 3.0,
    "error": '{"cause":"boom"}',
    "ended_by": "digest",
}
OPEN = {"attempt_id": "at-2", "position": 9, "worker_id": "w2", "started_at": 4.0, "heard_at": 5.0}


def held() -> dict[str, object]:
    request = RolloutRequest(task="t", config=RolloutConfig(unresponsive_seconds=10))
    pending = pending_document(request, rollout_id="ro", number=1, now=0.0)
    return pending | {
        "status": "running",
        "num_attempts": 2,
        "past": [PAST],
        "open": OPEN,
        "lease": 15.0,
        "deadline": 15.0,
    }


def test_a_request_becomes_a_pending_rollout() -> None:
    request = RolloutRequest(task={"a.b": {"$c": 1}}, run_id="r", metadata={"$m": "x.y"}, priority=-3)
    document = pending_document(request, rollout_id="ro", number=5, now=2.5)
    assert rollout_of(document) == Rollout(
        rollout_id="ro",
        run_id="r",
        task={"a.b": {"$c": 1}},
        metadata={"$m": "x.y"},
        priority=-3,
        created_at=2.5,
    )
    assert (document["position"], document["place"], document["queued"]) == (5, 5, True)
    assert "group_id" not in document


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (RolloutConfig(), (NEVER, NEVER)),
        (RolloutConfig(timeout_seconds=5), (NEVER, 5.0)),
        (RolloutConfig(unresponsive_seconds=3), (3.0, 3.0)),
        (RolloutConfig(timeout_seconds=2, unresponsive_seconds=3), (3.0, 2.0)),
    ],
)
def test_a_queued_rollout_holds_durations(config: RolloutConfig, expected: tuple[float, float]) -> None:
    found = durations(config)
    assert (found["lease"], found["deadline"]) == expected
    assert found["lease"] + 1.7e9 == (NEVER if expected[0] == NEVER else expected[0] + 1.7e9)


def test_attempts_are_read_from_their_rollout() -> None:
    document = held()
    attempts = placed_attempts(document)
    assert [(position, one.attempt_id, one.sequence_id, one.status) for position, one in attempts] == [
        (7, "at-1", 1, "failed"),
        (9, "at-2", 2, "running"),
    ]
    latest = latest_attempt(document)
    assert latest is not None
    assert (latest.lease, latest.last_heartbeat_at, latest.finished_at) == (15.0, 5.0, None)
    first = find_attempt(document, "at-1")
    assert first is not None
    assert (first[0].error and first[0].error.cause, first[1]) == ("boom", "digest")
    assert find_attempt(document, "none") is None
    assert workers_of(document) == ["w1", "w2"]


def test_only_an_attempt_under_way_can_be_due() -> None:
    assert is_due(held(), 15.0)
    assert not is_due(held(), 14.9)
    queued = pending_document(
        RolloutRequest(task=1, config=RolloutConfig(timeout_seconds=1)), rollout_id="ro", number=1, now=0.0
    )
    assert not is_due(queued, 1e9)


def test_slots_of_two_requests_never_begin_alike() -> None:
    prefixes = [slot_prefix("a", "bc"), slot_prefix("ab", "c"), slot_prefix("a", "b")]
    assert not any(one != other and one.startswith(other) for one in prefixes for other in prefixes)


def test_what_is_not_json_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequestError, match="task of rollout ro is not JSON"):
        json_text({1, 2}, "task of rollout ro")
    with pytest.raises(InvalidRequestError):
        json_text("\ud800", "x")
    with pytest.raises(InvalidRequestError):
        json_text(2**70, "x")
