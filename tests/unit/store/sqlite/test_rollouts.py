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
        **({"request_id": None, "run_id": None} | options),
    )


def unclaim(transaction: Transaction, held: list[AttemptedRollout]) -> list[str]:
    return rollouts.unclaim(transaction, [one.attempt.attempt_id for one in held])


def test_a_claim_taken_back_never_was(transaction: Transaction) -> None:
    before = rollouts.enqueue(transaction, [RolloutRequest(task=n, rollout_id=f"ro-{n}") for n in range(3)])
    resources.add(transaction, {"n": 1}, None, "rs")
    held = claim(transaction, 2, request_id="q")
    assert [one.rollout.resources_id for one in held] == ["rs", "rs"]
    assert unclaim(transaction, held) == ["ro-0", "ro-1"]
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
    unclaim(transaction, claim(transaction))
    assert rollouts.find_rollout(transaction, "ro")[0] == requeued
    assert claim(transaction)[0].attempt.sequence_id == 2


def test_an_undone_request_leaves_the_queue_as_it_was(transaction: Transaction) -> None:
    resources.add(transaction, {"n": 1}, None, "old")
    config = RolloutConfig(max_attempts=3)
    wanted = [RolloutRequest(task=n, rollout_id=f"ro-{n}", config=config) for n in range(3)]
    wanted[1] = wanted[1].model_copy(update={"resources_id": "old"})
    rollouts.enqueue(transaction, wanted)
    failed = claim(transaction)[0].attempt.attempt_id
    attempts.report(transaction, "ro-0", failed, lifecycle.AttemptReport(status="failed"))  # to the end
    before = rollouts.rollouts_by_id(transaction.db, ["ro-0", "ro-1", "ro-2"])
    claim(transaction, 3, request_id="lost")
    assert rollouts.undo_claim(transaction, "w", "another") == []
    assert rollouts.undo_claim(transaction, "w", "lost") == ["ro-1", "ro-2", "ro-0"]
    assert rollouts.rollouts_by_id(transaction.db, ["ro-0", "ro-1", "ro-2"]) == before
    assert [before[f"ro-{n}"].resources_id for n in range(3)] == ["old", "old", None]
    resources.add(transaction, {"n": 2}, None, "new")
    again = [(one.rollout.rollout_id, one.rollout.resources_id) for one in claim(transaction, 3)]
    assert again == [("ro-1", "old"), ("ro-2", "new"), ("ro-0", "old")]


def test_a_claim_that_was_used_is_not_taken_back(transaction: Transaction) -> None:
    rollouts.enqueue(transaction, [RolloutRequest(task=0, rollout_id="ro")])
    (held,) = claim(transaction)
    seen = attempts.report(transaction, "ro", held.attempt.attempt_id, lifecycle.AttemptReport())
    assert unclaim(transaction, [held]) == []
    assert rollouts.find_rollout(transaction, "ro")[0] == seen.rollout


def test_arrivals_and_finishes_are_told(transaction: Transaction) -> None:
    rollouts.enqueue(
        transaction, [RolloutRequest(task=0, run_id="r"), RolloutRequest(task=1, rollout_id="ro")]
    )
    rollouts.cancel(transaction, "ro")
    assert transaction.arrived == ["r", None]
    assert transaction.finished == ["ro"]
