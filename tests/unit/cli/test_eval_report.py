"""What agl eval prints, to the letter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agl.cli.eval_report import comparison_lines, places, report_lines
from agl.evaluation.comparison import compare
from agl.evaluation.report import Run, TaskRuns, report_on
from agl.proxy.accounts import Account
from agl.types import ErrorInfo, Rollout


def rollout(number: int, reward: float | None, **fields: Any) -> Rollout:
    known = {"status": "succeeded", "created_at": 0.0, "started_at": 1.0, "finished_at": 1.0 + number}
    return Rollout.model_validate(
        {"rollout_id": f"r{number}", "task": number, "reward": reward, **known, **fields}
    )


def shown(**account: Any) -> list[str]:
    tasks = [
        ("a", [rollout(1, 1.0, reward_dimensions={"form": 0.5}), rollout(2, 0.0)]),
        (
            "b",
            [
                rollout(3, 1.0, reward_dimensions={"form": 1.0}),
                rollout(4, None, status="failed", error=ErrorInfo(cause="Value\x1bError")),
            ],
        ),
        ("c", [rollout(5, 1.0), rollout(90, None)]),
    ]
    usage = Account(calls=12, input_tokens=3456, output_tokens=78, **account)
    report = report_on("runs/one", tasks, threshold=1.0, pass_at=[1, 2], usage=usage)
    return report_lines(report.as_json(), mode="test")


def test_the_report_says_all_that_was_measured() -> None:
    assert shown(cost_usd=0.5, calls_without_price=2) == [
        "Evaluated   runs/one",
        "Tasks       3 test tasks, 2 times each",
        "Reward      0.833 [0.116, 1.550]  mean over tasks, 95% interval",
        "pass@1      0.833 [0.116, 1.000]  reward of 1 or more",
        "pass@2      1.000  reward of 1 or more; 2 tasks have fewer than 2 rewards",
        "  form      0.750 [-2.427, 3.927]",
        "Rollouts    6 = 5 succeeded + 1 failed + 0 cancelled",
        "Failed      Value Error 1 (not in the mean)",
        "No reward   1 succeeded without one (not in the mean)",
        "Tokens      3,456 in + 78 out, 12 calls",
        "Cost        $0.5000 and 2 calls without a price",
        "Time        1m30s, 17.5s a rollout",
    ]


def test_a_cost_that_nobody_knows_is_no_zero() -> None:
    assert "Cost        unknown: no price is set for the model (proxy.prices)" in shown(
        calls_without_price=12
    )


def side(name: str, rewards: list[float]) -> list[TaskRuns]:
    return [
        TaskRuns(task_id=f"t{n}", task={"q": "x" * n}, runs=[Run(rollout_id=f"{name}-{n}", reward=reward)])
        for n, reward in enumerate(rewards)
    ]


def test_a_comparison_shows_difference_test_and_the_rollouts_of_flips() -> None:
    first, second = side("new", [1, 1, 1, 1, 0, 1]), side("old", [0, 0, 1, 0, 1, 1])
    comparison = compare(first, second, threshold=1.0)
    assert comparison_lines(comparison, "new", "base") == [
        "Difference  +0.333 [-0.524, +1.190], p = 0.6250",
        "Test        paired permutation, 6 tasks",
        "By task     better 3, worse 1, equal 2",
        "",
        "Passed by new alone: 3",
        '  1.00 against 0.00  {"q": ""}',
        "    new-0",
        "    old-0",
        '  1.00 against 0.00  {"q": "x"}',
        "    new-1",
        "    old-1",
        '  1.00 against 0.00  {"q": "xxx"}',
        "    new-3",
        "    old-3",
        "",
        "Passed by base alone: 1",
        '  0.00 against 1.00  {"q": "xxxx"}',
        "    new-4",
        "    old-4",
    ]


def test_many_flips_and_long_tasks_are_cut() -> None:
    first, second = side("new", [1.0] * 80), side("old", [0.0] * 80)
    lines = comparison_lines(compare(first, second[:70], threshold=1.0), "new", "base")
    assert lines[-1] == "  ... and 65 more"
    assert "10 without a reward on one of the sides" in lines[2]
    long = comparison_lines(compare(first[70:], side("old", [0.0] * 80), threshold=1.0), "a", "b")
    assert max(map(len, long)) <= 80


def test_the_place_of_all_of_it_is_said() -> None:
    assert places(Path("runs/e"), "evaluation.json")[-1] == (
        "Run folder  runs/e (evaluation.json: all rollouts by task)"
    )
