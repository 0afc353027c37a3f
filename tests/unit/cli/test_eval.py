"""agl eval: what it found, as lines and as JSON, and the reward that is too low."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agl.cli.eval import Found, refuse_low, shown_from
from agl.errors import AglError
from agl.evaluation.comparison import compare
from agl.evaluation.report import EvaluationReport, report_on
from agl.types import Rollout


def report(name: str, *rewards: float) -> EvaluationReport:
    tasks = [
        (f"t{n}", [Rollout(rollout_id=f"{name}-{n}", task=n, status="succeeded", reward=r, created_at=0.0)])
        for n, r in enumerate(rewards)
    ]
    return report_on(name, tasks, threshold=1.0, pass_at=[1])


def test_one_contestant_is_a_report_and_its_place() -> None:
    found = Found(folder=Path("runs/e"), mode="val", evaluated=report("me", 1.0, 0.0).as_json())
    lines = found.lines()
    assert (lines[0], lines[1]) == ("Evaluated   me", "Tasks       2 val tasks")
    assert lines[-1].startswith("Run folder  runs/e")
    plain = json.loads(json.dumps(found.as_json()))
    assert (plain["run_id"], plain["against"], plain["comparison"]) == ("e", None, None)


def test_two_contestants_are_two_reports_and_their_difference() -> None:
    first, second = report("new", 1.0, 1.0), report("old", 0.0, 1.0)
    found = Found(
        folder=Path("runs/e"),
        mode="test",
        evaluated=first.as_json(),
        against=second.as_json(),
        comparison=compare(first.tasks, second.tasks, threshold=1.0),
    )
    lines = found.lines()
    assert [line for line in lines if line.startswith("Evaluated")] == [
        "Evaluated   new",
        "Evaluated   old",
    ]
    assert "Passed by new alone: 1" in lines
    assert lines[lines.index("Passed by new alone: 1") + 2 :][:2] == [
        "    agl show new-0",
        "    agl show old-0",
    ]
    plain = json.loads(json.dumps(found.as_json()))
    assert plain["comparison"]["difference"]["mean"] == 0.5
    assert plain["comparison"]["gained"][0]["second_rollout_id"] == "old-0"


@pytest.mark.parametrize(
    ("mean", "message"),
    [
        (0.5, "--fail-under 0.7: the mean reward 0.5 is below it"),
        (None, "--fail-under 0.7: there is no reward"),
    ],
)
def test_a_reward_that_is_too_low_is_an_error(mean: float | None, message: str) -> None:
    with pytest.raises(AglError, match=message) as raised:
        refuse_low(mean, 0.7)
    assert raised.value.exit_code == 1


def test_a_reward_that_is_high_enough_is_none() -> None:
    refuse_low(0.7, 0.7)
    refuse_low(-1.0, None)


def test_rollouts_are_shown_from_where_their_records_are(tmp_path: Path) -> None:
    kept, served = tmp_path / "kept", tmp_path / "a run"
    for folder in (kept, served):
        folder.mkdir()
    assert shown_from(kept) == ""
    (kept / "store.sqlite").touch()
    assert shown_from(kept) == f"--run-dir {kept}"
    (served / "settings.yaml").write_text("store:\n  url: http://127.0.0.1:4747\n")
    assert shown_from(served) == "--store-url http://127.0.0.1:4747"
    served.joinpath("settings.yaml").write_text("store:\n  url: ${oc.env:URL}\n")
    assert shown_from(served) == ""
