"""Attempts by deadline."""

from __future__ import annotations

from agl.store.sqlite.attempts import AttemptDeadlines, grant_grace, renew
from agl.store.sqlite.rollouts import claim, enqueue
from agl.store.sqlite.writer import Transaction
from agl.types import RolloutConfig, RolloutRequest


def hand_out(transaction: Transaction, *configs: RolloutConfig) -> list[str]:
    enqueue(transaction, [RolloutRequest(task=0, config=config) for config in configs])
    held = claim(transaction, worker_id="w", limit=len(configs), request_id=None, run_id=None)
    return [one.attempt.attempt_id for one in held]


def due(transaction: Transaction, now: float, limit: int = 10) -> list[str]:
    return [one.attempt.attempt_id for one in AttemptDeadlines(transaction).due(now, limit)]


def test_the_most_overdue_come_first(transaction: Transaction) -> None:
    configs = [RolloutConfig(timeout_seconds=seconds) for seconds in (30, 10, 20)]
    first, second, third = hand_out(transaction, *configs, RolloutConfig())[:3]
    assert due(transaction, 109.9) == []
    assert due(transaction, 130.0) == [second, third, first]
    assert due(transaction, 130.0, limit=2) == [second, third]


def test_the_search_for_due_attempts_reads_an_index_only_as_far_as_needed(transaction: Transaction) -> None:
    plan = transaction.rows(
        "EXPLAIN QUERY PLAN SELECT 1 FROM attempt a WHERE a.deadline IS NOT NULL"
        " AND a.deadline <= 1 ORDER BY a.deadline"
    )
    assert "attempt_deadline (deadline>? AND deadline<?)" in str(plan)
    assert "TEMP B-TREE" not in str(plan)


def test_a_renewal_moves_the_lease_but_not_the_time_limit(transaction: Transaction) -> None:
    (attempt_id,) = hand_out(transaction, RolloutConfig(timeout_seconds=30, unresponsive_seconds=20))
    transaction.now = 115.0
    assert renew(transaction, "w", [attempt_id, "unknown"]) == ["unknown"]
    assert due(transaction, 129.9) == []
    assert due(transaction, 130.0) == [attempt_id]
    assert renew(transaction, "another", [attempt_id]) == [attempt_id]


def test_silence_while_the_store_was_away_is_not_counted(transaction: Transaction) -> None:
    silent, limited = hand_out(
        transaction, RolloutConfig(unresponsive_seconds=20), RolloutConfig(timeout_seconds=20)
    )
    grant_grace(transaction.db, 500.0)
    assert due(transaction, 519.9) == [limited]
    assert due(transaction, 520.0) == [limited, silent]
