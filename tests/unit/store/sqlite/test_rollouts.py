"""Claims and their undoing."""

from __future__ import annotations

from typing import Any

from agl.store import lifecycle
from agl.store.sqlite import attempts, resources, rollouts
from agl.store.sqlite.writer import Transaction
from agl.types import AttemptedRollout, RolloutConfig, RolloutRequest


def claim(transaction: Transaction, limit: int = 1, **options: Any) -> list[AttemptedRollout]:
    return rollouts.claim(
        transaction,
        worker_id="w",
        limit=limit,
        **({"request_id": None, "run_id": None, "pinned": set()} | options),
    )


def test_a_claim_taken_back_never_was(transaction: Transaction) -> None:
    before = rollouts.enqueue(transaction, [RolloutRequest(task=n, rollout_id=f"ro-{n}") for n in range(3)])
    resources.add(transaction, {"n": 1}, None, "rs")
    pinned: set[str] = set()
    held = claim(transaction, 2, request_id="q", pinned=pinned)
    assert [one.rollout.resources_id for one in held] == ["rs", "rs"]
    rollouts.unclaim(transaction, held, pinned)
    assert list(rollouts.rollouts_by_id(transaction.db, ["ro-0", "ro-1", "ro-2"]).values()) == before
    assert [one.rollout.task for one in claim(transaction, 3, request_id="q")] == [0, 1, 2]


def test_a_retrys_claim_taken_back_waits_again(transaction: Transaction) -> None:
    rollouts.enqueue(
        transaction, [RolloutRequest(task=0, rollout_id="ro", config=RolloutConfig(max_attempts=3))]
    )
    (first,) = claim(transaction)
    attempts.report(transaction, "ro", first.attempt.attempt_id, lifecycle.AttemptReport(status="failed"))
    requeued, _ = rollouts.find_rollout(transaction, "ro")
    transaction.now += 1
    rollouts.unclaim(transaction, claim(transaction), set())
    assert rollouts.find_rollout(transaction, "ro")[0] == requeued
    assert claim(transaction)[0].attempt.sequence_id == 2


def test_a_claim_that_was_used_is_not_taken_back(transaction: Transaction) -> None:
    rollouts.enqueue(transaction, [RolloutRequest(task=0, rollout_id="ro")])
    (held,) = claim(transaction)
    seen = attempts.report(transaction, "ro", held.attempt.attempt_id, lifecycle.AttemptReport())
    rollouts.unclaim(transaction, [held], set())
    assert rollouts.find_rollout(transaction, "ro")[0] == seen.rollout


def test_arrivals_and_finishes_are_told(transaction: Transaction) -> None:
    rollouts.enqueue(
        transaction, [RolloutRequest(task=0, run_id="r"), RolloutRequest(task=1, rollout_id="ro")]
    )
    rollouts.cancel(transaction, "ro")
    assert transaction.arrived == ["r", None]
    assert transaction.finished == ["ro"]
