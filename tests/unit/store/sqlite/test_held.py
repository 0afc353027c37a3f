"""Rows of rollouts and attempts."""

from __future__ import annotations

import pytest

from agl.errors import NotFoundError
from agl.store import lifecycle
from agl.store.sqlite.held import find_rollout, latest_attempt, save_attempt, save_rollout
from agl.store.sqlite.rollouts import claim, enqueue
from agl.store.sqlite.writer import Transaction
from agl.types import ErrorInfo, RolloutConfig, RolloutRequest


def test_what_was_saved_is_found(transaction: Transaction) -> None:
    config = RolloutConfig(unresponsive_seconds=5, max_attempts=2)
    enqueue(transaction, [RolloutRequest(task=1, rollout_id="ro", config=config)])
    (held,) = claim(transaction, worker_id="w", limit=1, request_id=None, run_id=None)
    _, position = find_rollout(transaction, "ro")
    report = lifecycle.AttemptReport(status="failed", error=ErrorInfo(cause="E", traceback="t"))
    done = lifecycle.ended(held, report, now=200.0)
    save_attempt(transaction, config, done.attempt, "digest")
    save_rollout(transaction, position, held.rollout, done.rollout)
    assert find_rollout(transaction, "ro") == (done.rollout, position)
    assert latest_attempt(transaction, position, "ro") == done.attempt
    assert transaction.arrived == [None, None]  # enqueued, and requeued
    with pytest.raises(NotFoundError, match="none"):
        find_rollout(transaction, "none")


def test_a_queued_rollout_keeps_its_place_when_it_is_saved(transaction: Transaction) -> None:
    enqueue(transaction, [RolloutRequest(task=n, rollout_id=f"ro-{n}") for n in range(2)])
    rollout, position = find_rollout(transaction, "ro-0")
    save_rollout(transaction, position, rollout, rollout.model_copy(update={"metadata": {"a": 1}}))
    (held,) = claim(transaction, worker_id="w", limit=1, request_id=None, run_id=None)
    assert (held.rollout.rollout_id, held.rollout.metadata) == ("ro-0", {"a": 1})
