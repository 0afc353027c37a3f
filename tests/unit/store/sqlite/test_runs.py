"""Metrics."""

from __future__ import annotations

from agl.store.sqlite import runs
from agl.store.sqlite.writer import Transaction


def test_a_step_without_values_stores_nothing(transaction: Transaction) -> None:
    runs.add(transaction, name="n", run_id="r", command="", settings={}, git_commit=None)
    runs.add_metrics(transaction, "r", 1, {})
    runs.add_metrics(transaction, "r", 2, {f"m{number}": float(number) for number in range(100)})
    assert transaction.row("SELECT count(*), min(step) FROM metric") == (100, 2)
