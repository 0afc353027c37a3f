"""What may happen to rollouts and attempts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from agl.errors import ConflictError, InvalidRequestError
from agl.store import lifecycle
from agl.store.lifecycle import ATTEMPT_MOVES, ROLLOUT_MOVES, AttemptReport, RolloutChange
from agl.types import Attempt, AttemptedRollout, ErrorInfo, Rollout, RolloutConfig, RolloutRequest

ENDS = ("succeeded", "failed", "timeout", "unresponsive", "cancelled")


def rollout(**fields: Any) -> Rollout:
    return Rollout(**({"rollout_id": "ro", "task": "t", "created_at": 1.0} | fields))


def held(*, config: RolloutConfig | None = None, **attempt: Any) -> AttemptedRollout:
    base = {
        "attempt_id": "at",
        "rollout_id": "ro",
        "sequence_id": 1,
        "started_at": 10.0,
        "last_heartbeat_at": 10.0,
    }
    status = "running" if attempt.get("status") == "running" else "preparing"
    return AttemptedRollout(
        rollout=rollout(status=status, num_attempts=1, config=config or RolloutConfig()),
        attempt=Attempt(**(base | attempt)),
    )


@pytest.mark.parametrize("table", [ROLLOUT_MOVES, ATTEMPT_MOVES])
def test_terminal_is_final(table: Any) -> None:
    for status, moves in table.items():
        assert lifecycle.is_terminal(status) == (not moves)
        assert status not in moves


def test_every_status_can_be_reached_and_left_for_an_end() -> None:
    for table, first in ((ROLLOUT_MOVES, "pending"), (ATTEMPT_MOVES, "preparing")):
        seen, new = {first}, {first}
        while new:
            new = {to for status in new for to in table[status]} - seen
            seen |= new
        assert seen == set(table)


@pytest.mark.parametrize(
    ("end", "num_attempts", "max_attempts", "retry_on", "expected"),
    [
        ("succeeded", 1, 3, ("failed",), "succeeded"),
        ("cancelled", 1, 3, ("failed",), "cancelled"),
        ("failed", 1, 1, ("failed",), "failed"),
        ("failed", 1, 2, ("failed",), "requeuing"),
        ("failed", 2, 2, ("failed",), "failed"),
        ("failed", 3, 2, ("failed",), "failed"),
        ("failed", 1, 2, ("timeout",), "failed"),
        ("timeout", 1, 2, ("timeout",), "requeuing"),
        ("unresponsive", 1, 2, ("timeout",), "failed"),
        ("unresponsive", 1, 2, ("unresponsive",), "requeuing"),
    ],
)
def test_what_an_attempts_end_makes_of_its_rollout(
    end: Any, num_attempts: int, max_attempts: int, retry_on: Any, expected: str
) -> None:
    config = RolloutConfig(max_attempts=max_attempts, retry_on=retry_on)
    assert lifecycle.rollout_end(config, num_attempts, end) == expected


@pytest.mark.parametrize(
    ("timeout", "silence", "lease", "deadline"),
    [
        (None, None, None, None),
        (60, None, None, 70.0),
        (None, 5, 15.0, 15.0),
        (60, 5, 15.0, 15.0),
        (3, 5, 15.0, 13.0),
    ],
)
def test_the_deadline_is_the_first_of_time_limit_and_lease(
    timeout: Any, silence: Any, lease: Any, deadline: Any
) -> None:
    config = RolloutConfig(timeout_seconds=timeout, unresponsive_seconds=silence)
    assert lifecycle.lease_end(config, 10.0) == lease
    assert lifecycle.deadline(config, held(lease=lease).attempt) == deadline
    assert lifecycle.deadline(config, held(lease=lease, status="failed").attempt) is None


@pytest.mark.parametrize(
    ("lease", "now", "cause"),
    [
        (20.0, 19.9, None),
        (20.0, 20.0, "unresponsive"),
        (40.0, 29.9, None),
        (40.0, 30.0, "timeout"),
        (30.0, 31.0, "timeout"),
    ],
)
def test_the_earlier_limit_is_the_cause(lease: float, now: float, cause: Any) -> None:
    config = RolloutConfig(timeout_seconds=20, unresponsive_seconds=10)
    assert lifecycle.expiry(config, held(lease=lease).attempt, now) == cause


def test_a_claim_pins_resources_and_counts_the_attempt() -> None:
    waiting = rollout(status="requeuing", num_attempts=1, started_at=3.0)
    made = lifecycle.claimed(waiting, attempt_id="at2", worker_id="w", resources_id="rs", now=9.0)
    assert (made.rollout.status, made.rollout.num_attempts, made.rollout.resources_id) == (
        "preparing",
        2,
        "rs",
    )
    assert made.rollout.started_at == 3.0
    assert (made.attempt.sequence_id, made.attempt.worker_id, made.attempt.started_at) == (2, "w", 9.0)
    kept = lifecycle.claimed(
        rollout(resources_id="own"), attempt_id="at", worker_id=None, resources_id="rs", now=9.0
    )
    assert kept.rollout.resources_id == "own"
    for status in set(ROLLOUT_MOVES) - lifecycle.QUEUED:
        with pytest.raises(ConflictError, match=status):
            lifecycle.claimed(
                rollout(status=status), attempt_id="a", worker_id="w", resources_id=None, now=9.0
            )


def test_a_request_becomes_a_pending_rollout() -> None:
    made = lifecycle.pending_rollout(
        RolloutRequest(task=1, group_id="g", priority=2), rollout_id="ro", now=4.0
    )
    assert (made.rollout_id, made.task, made.group_id, made.priority, made.created_at) == (
        "ro",
        1,
        "g",
        2,
        4.0,
    )
    assert made.status == "pending"


def test_an_attempt_runs_at_its_first_sign_of_life() -> None:
    config = RolloutConfig(unresponsive_seconds=5)
    seen = lifecycle.alive(held(config=config), now=12.0, worker_id="w2")
    assert (seen.attempt.status, seen.rollout.status) == ("running", "running")
    assert (seen.attempt.last_heartbeat_at, seen.attempt.lease, seen.attempt.worker_id) == (12.0, 17.0, "w2")
    done = held(status="failed")
    assert lifecycle.alive(done, now=12.0) is done


@pytest.mark.parametrize(("start", "end"), list(itertools.product(("preparing", "running"), ENDS)))
def test_an_open_attempt_may_end_in_every_way(start: Any, end: Any) -> None:
    done = lifecycle.ended(held(status=start), AttemptReport(status=end), now=20.0)
    assert (done.attempt.status, done.attempt.finished_at, done.attempt.lease) == (end, 20.0, None)
    assert lifecycle.is_terminal(done.rollout.status)
    expected = None if end == "succeeded" else ErrorInfo(cause=end)
    assert (done.attempt.error, done.rollout.error) == (expected, expected)


@pytest.mark.parametrize(
    ("end", "late"), list(itertools.product(ENDS, (*ENDS, "preparing", "running", None)))
)
def test_a_late_report_is_refused_unless_it_is_the_one_that_ended_the_attempt(end: Any, late: Any) -> None:
    done = held(status=end, finished_at=11.0)
    report = AttemptReport(status=late)
    ended_by = AttemptReport(status=end).digest()
    if late == end:
        assert lifecycle.reported(done, report, now=12.0, ended_by=ended_by) is done
    else:
        with pytest.raises(ConflictError, match="terminal is final"):
            lifecycle.reported(done, report, now=12.0, ended_by=ended_by)
    with pytest.raises(ConflictError):
        lifecycle.reported(done, report, now=12.0, ended_by=None)


def test_reports_differ_by_their_outcome_only() -> None:
    report = AttemptReport(status="succeeded", reward=1, reward_dimensions={"a": 1, "b": 2})
    same = AttemptReport(
        status="succeeded", reward=1.0, reward_dimensions={"b": 2.0, "a": 1.0}, worker_id="w"
    )
    assert report.digest() == same.digest()
    others = [
        AttemptReport(status="failed", reward=1.0, reward_dimensions={"a": 1, "b": 2}),
        AttemptReport(status="succeeded", reward=0.0, reward_dimensions={"a": 1, "b": 2}),
        AttemptReport(status="succeeded", reward=1.0),
        AttemptReport(status="succeeded"),
        AttemptReport(status="failed", error=ErrorInfo(cause="a")),
        AttemptReport(status="failed", error=ErrorInfo(cause="b")),
        AttemptReport(status="failed", error=ErrorInfo(cause="b", message="\ud800")),
    ]
    assert len({one.digest() for one in (report, *others)}) == 8


def test_text_a_list_or_an_endless_number_is_no_reward() -> None:
    for wrong in ("1", [1], float("nan"), float("inf")):
        with pytest.raises(InvalidRequestError, match="finite"):
            lifecycle.check_report(AttemptReport(status="succeeded", reward=wrong))  # pyright: ignore[reportArgumentType]


def test_cancelling_ends_the_attempt_too() -> None:
    open_one = held(status="running")
    ended, attempt = lifecycle.cancelled(open_one.rollout, open_one.attempt, now=20.0)
    assert attempt is not None
    assert (ended.status, attempt.status, ended.finished_at, attempt.finished_at) == (
        "cancelled",
        "cancelled",
        20.0,
        20.0,
    )
    assert lifecycle.cancelled(ended, attempt, now=30.0) == (ended, attempt)


def test_taking_a_rollout_back_cancels_its_attempt_whatever_max_attempts_says() -> None:
    open_one = held(status="running")
    back, attempt = lifecycle.changed(
        open_one.rollout, open_one.attempt, RolloutChange(status="requeuing"), now=20.0
    )
    assert attempt is not None
    assert (back.status, back.error, back.finished_at) == ("requeuing", None, None)
    assert (attempt.status, attempt.error) == (
        "cancelled",
        ErrorInfo(cause="requeued", message="set by update_rollout"),
    )


def test_a_new_silence_limit_counts_from_the_last_sign_of_life() -> None:
    open_one = held(status="running", last_heartbeat_at=12.0)
    change = RolloutChange(config=RolloutConfig(unresponsive_seconds=5))
    _, attempt = lifecycle.changed(open_one.rollout, open_one.attempt, change, now=14.0)
    assert attempt is not None
    assert attempt.lease == 17.0


def test_a_failed_attempt_pauses_before_the_next_and_a_claim_or_cancel_ends_the_pause() -> None:
    config = RolloutConfig(max_attempts=2, retry_delay_seconds=4.0)
    failed = lifecycle.ended(held(config=config), AttemptReport(status="failed"), now=20.0)
    assert failed.rollout.retry_at is not None
    assert 22.0 <= failed.rollout.retry_at <= 24.0
    claimed = lifecycle.claimed(failed.rollout, attempt_id="at-2", worker_id="w", resources_id=None, now=24.0)
    assert claimed.rollout.retry_at is None
    cancelled, _ = lifecycle.cancelled(failed.rollout, failed.attempt, now=21.0)
    assert cancelled.retry_at is None
    last = lifecycle.ended(claimed, AttemptReport(status="failed"), now=30.0)
    assert (last.rollout.status, last.rollout.retry_at) == ("failed", None)
