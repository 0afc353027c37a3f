"""The watchdog's sweep, over a fake index of deadlines."""

from __future__ import annotations

from collections.abc import Sequence

from agl.store import lifecycle
from agl.store.watchdog import expired, sweep
from agl.types import Attempt, AttemptedRollout, Rollout, RolloutConfig


def held(number: int, *, started_at: float, worker_id: str | None = "w") -> AttemptedRollout:
    config = RolloutConfig(timeout_seconds=100, unresponsive_seconds=10, max_attempts=2)
    attempt = Attempt(
        attempt_id=f"at-{number}",
        rollout_id=f"ro-{number}",
        sequence_id=1,
        worker_id=worker_id,
        started_at=started_at,
        last_heartbeat_at=started_at,
        lease=started_at + 10,
    )
    rollout = Rollout(
        rollout_id=f"ro-{number}", task=0, status="running", config=config, created_at=0.0, num_attempts=1
    )
    return AttemptedRollout(rollout=rollout, attempt=attempt)


class Index:
    """Deadlines in a list."""

    def __init__(self, entries: Sequence[AttemptedRollout]) -> None:
        self.entries = {one.attempt.attempt_id: one for one in entries}
        self.read = 0

    def due(self, now: float, limit: int) -> Sequence[AttemptedRollout]:
        ends = [(lifecycle.deadline(one.rollout.config, one.attempt), one) for one in self.entries.values()]
        found = [one for end, one in ends if end is not None and end <= now][:limit]
        self.read += len(found)
        return found

    def save(self, held: AttemptedRollout) -> None:
        self.entries[held.attempt.attempt_id] = held


def test_a_sweep_ends_all_that_are_due_and_reads_no_others() -> None:
    index = Index([held(number, started_at=float(number)) for number in range(2000)])
    assert sweep(index, now=1209.0) == 1200  # those that started at 0 to 1199
    assert index.read == 1200
    assert index.entries["at-1199"].attempt.status == "unresponsive"
    assert index.entries["at-1199"].rollout.status == "requeuing"
    assert index.entries["at-1200"].attempt.status == "preparing"
    assert sweep(index, now=1209.0) == 0


def test_an_expired_attempt_says_what_it_missed() -> None:
    silent = expired(held(1, started_at=0.0), now=10.0)
    assert silent.attempt.error is not None
    assert (
        silent.attempt.error.message == "no heartbeat, span or call from worker w for unresponsive_seconds=10"
    )
    busy = held(1, started_at=0.0)
    busy = busy.model_copy(update={"attempt": busy.attempt.model_copy(update={"lease": 105.0})})
    late = expired(busy, now=100.0)
    assert late.attempt.error is not None
    assert (late.attempt.status, late.attempt.error.cause) == ("timeout", "timeout")
    assert late.attempt.error.message == "the attempt took longer than timeout_seconds=100"
