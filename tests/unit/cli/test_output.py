"""What each command prints, at 80 and 140 columns; and that 40 columns and small encodings do."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from compared_runs import evaluation, made_run
from recorded_folder import recorded_folder
from snapshots import WIDTHS, require_snapshot
from typer.testing import CliRunner

from agl.cli.app import app
from agl.cli.doctor import lines_of
from agl.cli.eval import Found
from agl.cli.text import columns_of
from agl.doctor.findings import Finding, failure, fine
from agl.evaluation.comparison import compare
from agl.evaluation.report import Run, TaskRuns, report_on
from agl.proxy.accounts import Account
from agl.types import ErrorInfo, Rollout

COMMANDS: dict[str, tuple[str, ...]] = {
    "cancel": ("cancel", "one-waits-0", "one-0"),
    "retry": ("retry", "one-1"),
    "retry_here": ("retry", "one-1", "--here"),
    "replay": ("replay", "one-0"),
    "regrade": ("regrade", "--grader", "mine.py:grade"),
    "diff_runs": ("diff", "first", "second"),
    "diff_prompts": ("diff", "runs/first/prompts/best.txt", "runs/second/prompts/best.txt"),
    "export_rollouts": ("export", "what=rollouts", "--run-dir", "one"),
    "export_prompts": ("export", "what=prompts", "format=python", "--run-dir", "first"),
    "import": ("import", "rollouts.jsonl", "--run-dir", "copy"),
    "init": ("init", "tickets"),
}
OURS = re.compile(r"\b[0-9a-f]{12,16}\b")
SIZES = re.compile(r"[\d.]+ (kB|MB|bytes)")
TIMES = re.compile(r"\b\d+(\.\d+)?(ms|s)\b")
HELPED = (
    *(
        "",
        "train",
        "run",
        "proxy",
        "eval",
        "export",
        "import",
        "init",
        "doctor",
        "ls",
        "show",
        "trace",
        "logs",
    ),
    *("diff", "cancel", "retry", "replay", "regrade", "store", "store gc", "store backup"),
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a run of rollouts, two runs with prompts and evaluations, and a file of records."""
    folder = tmp_path_factory.mktemp("recorded")
    asyncio.run(recorded_folder(folder, [0, 1, 2, 4], waiting=2))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        made_run("first", best="You are an agent.\nAnswer {question} in one word.\n")
        made_run("second", width=4, best="You are an agent that thinks.\nAnswer {question} in one word.\n")
        for name in ("first", "second"):
            evaluation(f"{name}-eval", f"runs/{name}", "t1", "t2")
            text = "be brief" if name == "first" else "be brief \x1b[31mand caf\u00e9 \u4f1a\u8b70"
            (folder / "runs" / name / "prompts" / "best.txt").write_text(text, encoding="utf-8")
        exported = CliRunner().invoke(app, ["export", "what=rollouts", "--run-dir", "one"])
        assert exported.exit_code == 0
    return folder


@pytest.fixture
def world(recorded: Path, in_folder: Path) -> Path:
    """A copy of it for one test, in which the test runs."""
    shutil.copytree(recorded, in_folder, dirs_exist_ok=True)
    return in_folder


def printed(arguments: Sequence[str], width: int, *, encoding: str = "utf-8") -> tuple[int, str]:
    """Exit code and standard output of a command in a terminal of that width and encoding."""
    if arguments[0] == "export":
        Path("rollouts.jsonl").unlink(missing_ok=True)
    runner = CliRunner(charset=encoding, env={"COLUMNS": str(width), "NO_COLOR": "1"})
    result = runner.invoke(app, list(arguments), prog_name="agl")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout_bytes.decode(encoding)


def steady(text: str) -> list[str]:
    """The lines without what differs from one time to another."""
    text = OURS.sub(lambda found: "x" * len(found.group()), text)
    return TIMES.sub("#s", SIZES.sub(r"# \1", text)).splitlines()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_the_output_of_a_command(world: Path, name: str, width: int) -> None:
    code, text = printed(COMMANDS[name], width)
    assert code == (1 if name == "retry_here" else 0)  # it fails again
    lines = steady(text)
    assert all(columns_of(line) <= width for line in lines)
    require_snapshot(f"{name}_{width}", lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_narrow_terminals_and_small_encodings_do(
    recorded: Path, in_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for encoding in ("ascii", "latin-1"):
        place = in_folder / encoding
        shutil.copytree(recorded, place)
        monkeypatch.chdir(place)
        code, text = printed(COMMANDS[name], 40, encoding=encoding)
        assert code in (0, 1)
        assert text
        assert all(sign.isprintable() or sign == "\n" for sign in text)


def rollout(number: int, reward: float | None, **fields: object) -> Rollout:
    known = {"status": "succeeded", "created_at": 0.0, "started_at": 1.0, "finished_at": 3.5}
    return Rollout.model_validate(
        {
            "rollout_id": f"ro-{number}",
            "task": {"question": "x" * number},
            "reward": reward,
            **known,
            **fields,
        }
    )


def found() -> Found:
    """An evaluation of six tasks, against another one that did worse on three and better on one."""
    usage = Account(calls=12, input_tokens=3456, output_tokens=78, cost_usd=0.25, calls_without_price=0)
    sides: list[list[TaskRuns]] = []
    reports = []
    for who, rewards in (("runs/ppo", (1, 1, 1, 1, 0, 1)), ("base (m)", (0, 0, 1, 0, 1, 1))):
        failed = rollout(9, None, status="failed", error=ErrorInfo(cause="TimeoutError"))
        tasks = [(f"t{number}", [rollout(number * 30, reward)]) for number, reward in enumerate(rewards)]
        report = report_on(who, [*tasks, ("t9", [failed])], threshold=1.0, pass_at=[1], usage=usage)
        reports.append(report.as_json())
        sides.append(
            [
                TaskRuns(
                    task_id=task_id,
                    task=rollouts[0].task,
                    runs=[Run(rollout_id=f"{who[:4]}-{task_id}", reward=rollouts[0].reward)],
                )
                for task_id, rollouts in tasks
            ]
        )
    one = Found(folder=Path("runs/ppo-eval"), mode="test", evaluated=reports[0])
    return replace(one, against=reports[1], comparison=compare(sides[0], sides[1], threshold=1.0))


def test_the_report_of_an_evaluation(in_folder: Path) -> None:
    lines = found().lines()
    require_snapshot("eval", lines)
    assert max(map(columns_of, lines)) <= min(WIDTHS)


FINDINGS = (
    fine("python", "3.11.7 (CPython) at /home/me/.venv/bin/python"),
    fine("chat template", "it opens the answer with '<|im_start|>assistant\\n'"),
    Finding(
        status="warn",
        what="gpu",
        detail="one of 3 GB, and the policy, its gradients and AdamW's state take 8 GB",
        fix="policy=lora, or a smaller policy.path",
    ),
    failure(
        "data train",
        "train is data/train.jsonl, and line 17 of it has no 'answer', which agent.py:agent asks for",
        "write it, or say with data.rename which field it is",
    ),
)


@pytest.mark.parametrize("width", [40, *WIDTHS])
def test_the_findings_of_the_doctor(width: int) -> None:
    lines = [line for finding in FINDINGS for line in lines_of(finding, width=width)]
    assert max(map(columns_of, lines)) <= width
    require_snapshot(f"doctor_{width}", lines)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_help_of_every_command(in_folder: Path, width: int) -> None:
    lines: list[str] = []
    for command in HELPED:
        code, text = printed([*command.split(), "--help"], width)
        assert code == 0
        lines += [f"$ agl {command}".rstrip(), *(line.rstrip() for line in text.splitlines())]
    require_snapshot(f"help_{width}", lines)
