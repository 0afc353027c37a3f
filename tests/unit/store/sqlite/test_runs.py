"""Counts and metrics."""

from __future__ import annotations

from agl.store.lifecycle import ATTEMPT_MOVES, ROLLOUT_MOVES
from agl.store.sqlite import runs
from agl.store.sqlite.writer import Transaction


def test_an_empty_store_counts_zero_of_everything(transaction: Transaction) -> None:
    expected = {
        "rollouts": dict.fromkeys(ROLLOUT_MOVES, 0),
        "attempts": dict.fromkeys(ATTEMPT_MOVES, 0),
        "spans": 0,
        "resources": 0,
        "workers": 0,
        "runs": 0,
    }
    assert runs.statistics(transaction.db, None) == expected
    assert runs.statistics(transaction.db, "r") == expected


def test_a_step_without_values_stores_nothing(transaction: Transaction) -> None:
    runs.add(transaction, name="n", run_id="r", command="", settings={}, git_commit=None)
    runs.add_metrics(transaction, "r", 1, {})
    runs.add_metrics(transaction, "r", 2, {f"m{number}": float(number) for number in range(100)})
    assert transaction.row("SELECT count(*), min(step) FROM metric") == (100, 2)
