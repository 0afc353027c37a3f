"""What `agl init` makes: looked at, tested and trained with the real commands, in each framework that is here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from agl.agents.function import FunctionAgent
from agl.cli.new_recipe import write_recipe
from agl.cli.starters import FRAMEWORKS, Starter
from agl.doctor.program import agent
from agl.types import PromptTemplate

TEMPLATES = Path(__file__).parents[2] / "recipes" / "starter"
AGL = (sys.executable, "-m", "agl")
ILLEGAL = re.compile(r'[<>:"|?*\\\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)
"""What no file may be called on Windows (https://learn.microsoft.com/windows/win32/fileio/naming-a-file)."""
INSTALLED = [
    starter
    for starter in Starter
    if starter is not Starter.COMMAND and all(find_spec(module) for module in FRAMEWORKS[starter].modules)
]


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_new_recipe_is_well_passes_its_tests_and_learns(tmp_path: Path) -> None:
    told = json.loads(run(tmp_path, *AGL, "init", "tickets", "--json"))
    folder = tmp_path / told["folder"]
    examined = json.loads(run(folder, *AGL, "doctor", "+recipe=tickets", "--json"))
    by_subject = {finding["what"]: finding["status"] for finding in examined["findings"]}
    assert examined["ok"]
    parts = (
        "settings",
        "data train",
        "data val",
        "data test",
        "agent",
        "tokenizer",
        "end token",
        "turns",
        "call",
    )
    assert {part: by_subject[part] for part in parts} == dict.fromkeys(parts, "ok")
    assert "7 passed" in run(folder, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    run(folder, *AGL, "train", "+recipe=tickets", "--run-dir", "runs/first", "metrics.console=plain")
    values = [
        found["val/reward"]
        for line in (folder / "runs/first/metrics.jsonl").read_text().splitlines()
        if "val/reward" in (found := json.loads(line))
    ]
    assert values[-1] >= values[0] + 0.2, values
    assert (folder / "runs/first/policy/model.safetensors").is_file()
    illegal = [path for path in folder.rglob("*") if ILLEGAL.search(path.name)]
    assert illegal == []


@pytest.mark.parametrize("starter", INSTALLED)
async def test_the_agent_of_each_framework_takes_what_the_recipe_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starter: Starter
) -> None:
    write_recipe(tmp_path / "mine", starter, templates=TEMPLATES)
    monkeypatch.chdir(tmp_path / "mine")
    built = FunctionAgent("agent.py:agent")
    (finding,) = await agent(built, {"prompt_template": PromptTemplate(template="{message}")})
    assert (finding.status, finding.what) == ("ok", "agent")


def test_a_program_is_run_on_a_task(tmp_path: Path) -> None:
    write_recipe(tmp_path / "mine", Starter.COMMAND, templates=TEMPLATES)
    said = run(tmp_path / "mine", *AGL, "run", "+recipe=mine", "--limit", "2")
    assert "2 tasks: 2 succeeded, mean reward " in said
