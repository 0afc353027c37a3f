from __future__ import annotations

from agl.store.lifecycle import AttemptReport
from agl.store.sqlite import attempts, pausing, rollouts
from agl.store.sqlite.writer import Transaction
from agl.types import RolloutConfig, RolloutRequest

CONFIG = RolloutConfig(max_attempts=3, retry_delay_seconds=10)


def failed(transaction: Transaction, *names: str) -> None:
    requests = [
        RolloutRequest(task=0, rollout_id=name, run_id=f"run of {name}", config=CONFIG) for name in names
    ]
    rollouts.enqueue(transaction, requests)
    held = rollouts.claim(transaction, worker_id="w", limit=len(names), request_id=None, run_id=None)
    for one in held:
        key = (one.rollout.rollout_id, one.attempt.attempt_id)
        attempts.report(transaction, *key, AttemptReport(status="failed"))
    transaction.arrived.clear()


def test_only_those_whose_pause_is_over_join_the_queue(transaction: Transaction) -> None:
    failed(transaction, "a", "b", "c")
    ends = dict(transaction.rows("SELECT rollout_id, retry_at FROM rollout"))
    first = min(ends, key=ends.__getitem__)
    transaction.now = ends[first]
    pausing.release_due(transaction)
    assert transaction.arrived == [f"run of {first}"]
    claimed = rollouts.claim(transaction, worker_id="w", limit=9, request_id=None, run_id=None)
    assert [one.rollout.rollout_id for one in claimed] == [first]
    assert pausing.count_pausing(transaction.db, None) == 2
    assert pausing.count_pausing(transaction.db, f"run of {first}") == 0


def test_what_pauses_is_found_by_the_index_of_those_who_pause(transaction: Transaction) -> None:
    due = transaction.rows(f"EXPLAIN QUERY PLAN {pausing.DUE}", (1.0,))
    assert "rollout_retry (retry_at>? AND retry_at<?)" in due[0][-1]
    first = transaction.rows(
        "EXPLAIN QUERY PLAN SELECT min(retry_at) FROM rollout WHERE retry_at IS NOT NULL"
    )
    assert "COVERING INDEX rollout_retry" in first[0][-1]
