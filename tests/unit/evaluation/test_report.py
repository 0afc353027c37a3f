"""Reports on finished rollouts, worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agl.evaluation.report import EvaluationReport, report_on, task_runs_from_json
from agl.types import ErrorInfo, Rollout


def rollout(number: int, reward: float | None = None, **fields: Any) -> Rollout:
    known = {"status": "succeeded", "created_at": 0.0, "started_at": number, "finished_at": number + 2.0}
    return Rollout.model_validate(
        {"rollout_id": f"r{number}", "task": number // 10, "reward": reward, **known, **fields}
    )


def failed(number: int, cause: str) -> Rollout:
    return rollout(number, status="failed", error=ErrorInfo(cause=cause))


def report() -> EvaluationReport:
    tasks = [
        ("a", [rollout(0, 1.0), rollout(1, 0.0), rollout(2, 0.5)]),
        ("b", [rollout(10, 1.0), rollout(11, 1.0), failed(12, "ValueError")]),
        ("c", [rollout(20), failed(21, "timeout"), rollout(22, 0.9, status="cancelled")]),
    ]
    return report_on("me", tasks, threshold=0.5, pass_at=[1, 2, 3])


def test_failures_and_missing_rewards_are_no_zeros_in_any_number() -> None:
    found = report()
    assert (found.reward.mean, found.reward.num_tasks, found.reward.num_rewards) == (0.75, 2, 5)
    assert found.pass_at[1].mean == pytest.approx((2 / 3 + 1) / 2)
    assert found.pass_at[2].mean == 1.0  # of any two of a's one passes
    assert (found.pass_at[3].mean, found.pass_at[3].num_tasks) == (1.0, 1)  # only a has three


def test_every_rollout_is_counted_by_how_it_ended() -> None:
    counts = report().counts
    assert (counts.enqueued, counts.succeeded, counts.cancelled, counts.without_reward) == (9, 6, 1, 1)
    assert counts.failed == {"ValueError": 1, "timeout": 1}
    assert [run.cause for run in report().tasks[2].runs] == ["no reward", "timeout", "cancelled"]


def test_time_is_from_the_first_claim_to_the_last_end() -> None:
    assert (report().seconds, report().rollout_seconds) == (24.0, 2.0)


def test_dimensions_have_intervals_of_their_own() -> None:
    tasks = [
        ("a", [rollout(0, 1.0, reward_dimensions={"reward": 1.0, "form": 0.5})]),
        ("b", [rollout(10, 0.0, reward_dimensions={"reward": 0.0})]),
        ("c", [failed(20, "x")]),
    ]
    dimensions = report_on("me", tasks, threshold=1.0, pass_at=[1]).dimensions
    assert (dimensions["reward"].mean, dimensions["reward"].num_tasks) == (0.5, 2)
    assert (dimensions["form"].mean, dimensions["form"].low) == (0.5, None)


def test_a_report_that_was_written_down_has_the_same_tasks() -> None:
    found = report()
    written = json.loads(json.dumps(found.as_json()))
    assert task_runs_from_json(written["tasks"]) == found.tasks
    assert written["pass_at"]["2"]["mean"] == 1.0
    assert written["rollouts"]["failed"] == {"ValueError": 1, "timeout": 1}
    assert written["usage"] is None


def test_no_rollouts_are_no_rewards() -> None:
    empty = report_on("me", [], threshold=1.0, pass_at=[1])
    assert (empty.reward.mean, empty.seconds, empty.rollout_seconds) == (None, None, None)


def test_the_interval_of_a_chance_ends_at_0_and_1() -> None:
    tasks = [(str(number), [rollout(number, reward)]) for number, reward in enumerate((1.0, 1.0, 0.0))]
    found = report_on("me", tasks, threshold=1.0, pass_at=[1])
    assert (found.pass_at[1].low, found.pass_at[1].high) == (0.0, 1.0)
    assert found.reward.low is not None
    assert found.reward.low < 0  # 2/3 - 4.303 / 3: a reward may be anything
