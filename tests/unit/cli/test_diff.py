"""agl diff: what differs, for people and as JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command_line import Agl
from compared_runs import evaluation, made_run

from agl.cli.compared import Side
from agl.cli.diff import difference, lines_of
from agl.types import PromptTemplate


def test_two_prompts_are_a_text_diff_and_exit_code_is_as_in_git(in_folder: Path, agl: Agl) -> None:
    Path("a.txt").write_text("Answer: {q}\nBe short.\n")
    Path("b.txt").write_text("Answer: {q}\nBe \x1b[2Jsure, and " + "long " * 20 + "\n")
    code, out, _ = agl("diff", "a.txt", "b.txt")
    lines = out.splitlines()
    assert code == 0
    assert lines[:3] == ["A   a.txt (file)", "B   b.txt (file)", ""]
    assert [line for line in lines if line.startswith(("-B", "+"))][1:] == [
        "-Be short.",
        "+Be  [2Jsure, and " + "long " * 11 + "long",
        "+" + "long " * 7 + "long",
    ]
    assert agl("diff", "a.txt", "b.txt", "--exit-code")[0] == 1
    same = agl("diff", "a.txt", "a.txt", "--exit-code")
    assert same[0] == 0
    assert same[1].splitlines()[-1] == "Prompts, settings and resources are the same."


def test_two_runs_are_their_prompts_settings_and_last_numbers(in_folder: Path, agl: Agl) -> None:
    made_run("a", width=1)
    made_run("b", width=4, best="second")
    code, out, _ = agl("diff", "a", "b")
    assert code == 0
    assert out.splitlines()[3:] == [
        "Prompt prompt",
        "--- 5d0c1a5e8a2c (version 1)".replace("5d0c1a5e8a2c", PromptTemplate(template="first").template_id),
        f"+++ {PromptTemplate(template='second').template_id} (version 1)",
        "@@ -1 +1 @@",
        "-first",
        "+second",
        "",
        "Settings              A  B",
        "algorithm.beam_width  1  4",
        "",
        "Last number    A    B  B - A",
        "val/reward   0.5  0.5     +0",
    ]
    found = json.loads(agl("diff", "a", "b", "--json")[1])
    assert (found["different"], found["settings"]) == (True, {"algorithm.beam_width": [1, 4]})
    assert found["numbers"] == {"val/reward": [0.5, 0.5]}


def test_recorded_evaluations_of_both_are_compared(in_folder: Path, agl: Agl) -> None:
    made_run("a")
    made_run("b")
    for name, reward in (("a", 1.0), ("b", 0.0)):
        evaluation(f"{name}-eval", f"runs/{name}", "t1", "t2")
        file = Path("runs") / f"{name}-eval" / "evaluation.json"
        found = json.loads(file.read_text())
        for task in found["evaluated"]["tasks"]:
            task["runs"] = [{"rollout_id": f"{name}-{task['task_id']}", "reward": reward, "cause": None}]
        file.write_text(json.dumps(found))
    code, out, _ = agl("diff", "a", "b")
    assert code == 0
    assert "Evaluated in runs/a-eval and runs/b-eval; A minus B" in out
    assert "Difference  +1.000" in out
    assert "Passed by A alone: 2" in out
    found = json.loads(agl("diff", "b", "a", "--json")[1])
    assert found["comparison"]["difference"]["mean"] == -1.0
    assert found["evaluations"] == ["runs/b-eval", "runs/a-eval"]


def test_a_file_is_compared_with_the_only_prompt_of_a_run(in_folder: Path, agl: Agl) -> None:
    made_run("a", best="better")
    Path("p.txt").write_text("better")
    assert agl("diff", "p.txt", "a", "--exit-code")[0] == 0
    Path("p.txt").write_text("worse")
    code, out, _ = agl("diff", "a", "p.txt", "--exit-code")
    assert code == 1
    assert out.splitlines()[-2:] == ["-better", "+worse"]


def test_a_prompt_that_only_one_side_has_is_all_new() -> None:
    first = Side(name="a", kind="resources", prompts={})
    second = Side(name="b", kind="resources", prompts={"p": PromptTemplate(template="new", engine="jinja2")})
    assert difference(first, second).prompts["p"][-1] == "+new"
    assert lines_of(difference(first, first), 80)[-1] == "There is nothing to compare."


def test_another_template_language_is_a_difference_of_its_own() -> None:
    def side(engine: str) -> Side:
        prompt = PromptTemplate(template="same", engine=engine)  # type: ignore[arg-type]
        return Side(name=engine, kind="resources", prompts={"p": prompt})

    assert difference(side("f-string"), side("jinja2")).prompts == {"p": ["engine: f-string -> jinja2"]}


@pytest.mark.parametrize("width", [40, 80, 140])
def test_every_line_fits_the_terminal(
    in_folder: Path, agl: Agl, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    made_run("a")
    folder = made_run("b", width=4, best="a much longer prompt " * 20)
    rows = {f"rollouts/{n}": float(n) for n in range(30)}
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "time": 1.0, **rows}) + os.linesep)
    code, out, _ = agl("diff", "a", "b")
    assert code == 0
    assert max(map(len, out.splitlines())) <= width
    assert "... and 19 more (--json has all)" in out
