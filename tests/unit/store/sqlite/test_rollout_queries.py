"""Rollouts are listed from indexes, and each way to read them lists the same."""

from __future__ import annotations

import itertools
import sqlite3
from typing import Any

import pytest

from agl.store.lifecycle import RolloutChange
from agl.store.sqlite import rollout_queries, rollouts
from agl.store.sqlite.writer import Transaction
from agl.types import Rollout, RolloutQuery, RolloutRequest, RolloutStatus

STATUSES: tuple[RolloutStatus, ...] = ("pending", "preparing", "cancelled")
RUNS = ("a", "b", None)
WORKERS = ("v", "w", "idle")


def plans(db: sqlite3.Connection, query: RolloutQuery) -> str:
    """Return how SQLite would run the statements of a list."""
    statements: list[str] = []
    db.set_trace_callback(statements.append)
    rollout_queries.rollouts(db, query)
    db.set_trace_callback(None)
    return str([db.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall() for statement in statements])


@pytest.fixture
def records(transaction: Transaction) -> list[Rollout]:
    """60 rollouts of three runs in three statuses, some made at the same time, two workers taking turns."""
    for number in range(60):
        transaction.now = 100.0 + number // 4
        run_id = RUNS[number % 3]
        request = RolloutRequest(
            task=number, run_id=run_id, rollout_id=f"{number}", mode=("train", "val")[number % 2]
        )
        rollouts.enqueue(transaction, [request])
        if number % 4 < 3:
            rollouts.start_attempt(transaction, f"{number}", WORKERS[number % 2])
        if number % 4 == 1:
            rollouts.change(transaction, f"{number}", RolloutChange(status="requeuing"))
            rollouts.start_attempt(transaction, f"{number}", WORKERS[number % 2])
        if number % 4 == 2:
            rollouts.cancel(transaction, f"{number}")
    return list(rollouts.rollouts_by_id(transaction.db, [f"{number}" for number in range(60)]).values())


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_filters_combine_and_pages_join(transaction: Transaction, records: list[Rollout], order: Any) -> None:
    taken_by = dict(
        transaction.rows(
            "SELECT r.rollout_id, a.worker_id FROM attempt a JOIN rollout r ON r.position = a.rollout"
        )
    )
    records = sorted(records, key=lambda one: (one.created_at, int(one.rollout_id)), reverse=order == "desc")
    statuses = (None, (), ("pending",), ("cancelled", "preparing", "cancelled"))
    for run_id, status, worker_id, mode in itertools.product(
        ("a", "b", "none", None), statuses, (*WORKERS, None), ("val", None)
    ):
        expected = [
            one.rollout_id
            for one in records
            if (run_id is None or one.run_id == run_id)
            and (status is None or one.status in status)
            and (worker_id is None or taken_by.get(one.rollout_id) == worker_id)
            and (mode is None or one.mode == mode)
        ]
        found: list[str] = []
        query = RolloutQuery(
            run_id=run_id, status=status, worker_id=worker_id, mode=mode, order=order, limit=7
        )
        while True:
            page = rollout_queries.rollouts(transaction.db, query)
            found += [one.rollout_id for one in page.items]
            if page.next_cursor is None:
                break
            query = query.model_copy(update={"cursor": page.next_cursor})
        assert found == expected, (run_id, status, worker_id, mode)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (RolloutQuery(), "rollout_created"),
        (RolloutQuery(sort_by="reward", order="desc"), "rollout_reward"),
        (RolloutQuery(sort_by="finished_at"), "rollout_finished"),
        (RolloutQuery(sort_by="started_at"), "rollout_started"),
        (RolloutQuery(run_id="r"), "rollout_run"),
        (RolloutQuery(run_id="r", status=("pending",)), "rollout_run"),
        (RolloutQuery(status=("pending", "failed")), "rollout_status"),
        (RolloutQuery(worker_id="w"), "attempt_worker_rollout"),
    ],
)
def test_lists_read_an_index(db: sqlite3.Connection, query: RolloutQuery, index: str) -> None:
    assert index in plans(db, query)


def test_the_rollouts_of_a_worker_need_no_sorting(db: sqlite3.Connection) -> None:
    assert "TEMP B-TREE" not in plans(db, RolloutQuery(worker_id="w"))
