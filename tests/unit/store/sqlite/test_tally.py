"""Counts beside the rows are the counts of the rows."""

from __future__ import annotations

from agl.store import lifecycle
from agl.store.lifecycle import ATTEMPT_MOVES, ROLLOUT_MOVES
from agl.store.sqlite import attempts, retention, rollouts, runs, spans, tally
from agl.store.sqlite.writer import Transaction
from agl.types import RolloutConfig, RolloutRequest, Span


def test_an_empty_store_counts_zero_of_everything(transaction: Transaction) -> None:
    expected = {
        "rollouts": dict.fromkeys(ROLLOUT_MOVES, 0),
        "pausing": 0,
        "attempts": dict.fromkeys(ATTEMPT_MOVES, 0),
        "spans": 0,
        "resources": 0,
        "workers": 0,
        "runs": 0,
    }
    assert tally.statistics(transaction.db, None) == expected
    assert tally.statistics(transaction.db, "r") == expected


def counted(transaction: Transaction) -> set[tuple[object, ...]]:
    """Return what the tally should be, from the rows."""
    return set(
        transaction.rows(
            "SELECT 'rollouts', coalesce(run_id, x''), status, count(*) FROM rollout GROUP BY 2, 3"
            " UNION ALL SELECT 'attempts', coalesce(r.run_id, x''), a.status, count(*) FROM attempt a"
            " JOIN rollout r ON r.position = a.rollout GROUP BY 2, 3"
            " UNION ALL SELECT 'workers', coalesce(r.run_id, x''), a.worker_id, count(*) FROM attempt a"
            " JOIN rollout r ON r.position = a.rollout WHERE a.worker_id IS NOT NULL GROUP BY 2, 3"
            " UNION ALL SELECT 'spans', coalesce(run_id, x''), '', count(*) FROM span GROUP BY 2"
        )
    )


def kept(transaction: Transaction) -> set[tuple[object, ...]]:
    """Return the tally."""
    return set(transaction.rows("SELECT what, run, key, number FROM tally WHERE number <> 0"))


def test_the_tally_follows_every_change(transaction: Transaction) -> None:
    runs.add(transaction, name="n", run_id="a", command="", settings={}, git_commit=None)
    config = RolloutConfig(max_attempts=2)
    requests = [RolloutRequest(task=1, run_id=run_id, config=config) for run_id in ("a", "a", "b", None, "")]
    rollouts.enqueue(transaction, requests)
    assert kept(transaction) == counted(transaction)
    held = rollouts.claim(transaction, worker_id="w", limit=4, request_id="q", run_id=None)
    assert kept(transaction) == counted(transaction)
    for number, one in enumerate(held):
        key = {"rollout_id": one.rollout.rollout_id, "attempt_id": one.attempt.attempt_id}
        span = Span(span_id=f"{number}", trace_id="t", name="n", start_time_ns=1, **key)
        stray = Span(span_id="stray", trace_id="t", name="n", start_time_ns=1)
        spans.add(transaction, [span, stray])  # the stray one is stored once
        said = lifecycle.AttemptReport(status="failed", worker_id=f"w{number}")
        attempts.report(transaction, key["rollout_id"], key["attempt_id"], said)
    assert kept(transaction) == counted(transaction)
    assert tally.statistics(transaction.db, None)["spans"] == 5
    assert tally.statistics(transaction.db, "a")["workers"] == 2
    for one in held:
        rollouts.cancel(transaction, one.rollout.rollout_id)
    runs.update(transaction, "a", "succeeded")
    done = False
    while not done:
        _, done = retention.delete_some_of_run(transaction, "a")
    assert kept(transaction) == counted(transaction)
    assert transaction.rows("SELECT * FROM tally WHERE run = 'a'") == []


def test_a_claim_taken_back_is_not_counted(transaction: Transaction) -> None:
    rollouts.enqueue(transaction, [RolloutRequest(task=1, run_id="a")])
    rollouts.claim(transaction, worker_id="w", limit=1, request_id="q", run_id=None)
    rollouts.undo_claim(transaction, "w", "q")
    assert kept(transaction) == counted(transaction)
    assert tally.count_rollouts(transaction.db, "a", ("pending", "failed")) == 1
    assert tally.count_rollouts(transaction.db, None, None) == 1
