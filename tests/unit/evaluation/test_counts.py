"""Every rollout is counted once, by how it ended."""

from __future__ import annotations

from agl.evaluation.counts import RolloutCounts, count_rollouts, first_cause
from agl.types import ErrorInfo, Rollout, RolloutStatus


def rollout(status: RolloutStatus, *, reward: float | None = None, cause: str | None = None) -> Rollout:
    error = ErrorInfo(cause=cause, message=f"{cause} happened\nmore") if cause else None
    return Rollout(rollout_id="r", task=1, status=status, reward=reward, error=error, created_at=0.0)


ENDS = [
    rollout("succeeded", reward=1.0),
    rollout("succeeded"),
    rollout("failed", cause="ValueError"),
    rollout("failed", cause="timeout"),
    rollout("failed", cause="timeout"),
    rollout("cancelled"),
]


def test_the_counts_add_up() -> None:
    counts = count_rollouts(ENDS)
    assert counts.enqueued == counts.succeeded + counts.failed.total() + counts.cancelled == 6
    assert dict(counts.failed) == {"ValueError": 1, "timeout": 2}
    assert counts.without_reward == 1
    assert counts.bad == 5


def test_stragglers_are_cancelled_ones() -> None:
    straggler = rollout("cancelled").changed(metadata={"straggler": True})
    late = rollout("succeeded", reward=1.0).changed(
        metadata={"straggler": True}
    )  # it ended before its cancel
    counts = count_rollouts([*ENDS, straggler, late])
    assert (counts.cancelled, counts.stragglers, counts.succeeded) == (2, 1, 3)
    assert counts.enqueued == counts.succeeded + counts.failed.total() + counts.cancelled == 8
    assert (counts + counts).metrics()["rollouts/stragglers"] == 2


def test_counts_of_iterations_are_added_cause_by_cause() -> None:
    total = count_rollouts(ENDS) + count_rollouts(ENDS) + RolloutCounts()
    assert total.metrics()["rollouts/failed/timeout"] == 4
    assert total.metrics()["rollouts/enqueued"] == 12


def test_the_first_cause_is_one_line() -> None:
    assert first_cause(ENDS[2:]) == "ValueError: ValueError happened"
    assert "no reward" in first_cause(ENDS[1:])
