"""The commands of the page on prompts do what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from train_processes import finished, start_train

from agl.config import check, compose

PAGE = Path(__file__).parents[2] / "docs" / "prompts.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line)
    for block in re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_composes(command: list[str]) -> None:
    assert command[:2] == ["agl", "train"]
    check(compose("train", command[2:]))


def test_every_setting_in_the_table_has_that_default() -> None:
    settings = compose("train", ["algorithm=apo"]).values["algorithm"]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.+?) \|", TEXT, re.MULTILINE)
    told: dict[str, str] = {}
    for names, defaults in rows:
        names, values = re.findall(r"`(\w+)`", names), [one.strip("` ") for one in defaults.split(",")]
        told |= dict(zip(names, values if len(values) == len(names) else values * len(names), strict=True))
    known = {name: value for name, value in told.items() if name in settings}
    assert len(known) == 15
    for name, value in known.items():
        default = settings[name]
        assert value == ("null" if default is None else str(default)), name


def test_a_search_within_a_budget_leaves_what_the_page_says(tmp_path: Path) -> None:
    (command,) = [one for one in COMMANDS if "algorithm.budget.max_rollouts=300" in one]
    small = ["algorithm.val_batch_size=8", "data.num_val=6", "metrics.console=plain"]
    tight = ["algorithm.budget.max_rollouts=40"]
    code, out, err = finished(start_train(tmp_path / "run", *command[2:], *small, *tight))
    assert code == 0, err
    assert "ended early: the next" in out
    assert "would pass budget.max_rollouts=40" in out
    for name in re.findall(r"^runs/NAME/(\S+)", TEXT, re.MULTILINE):
        assert (tmp_path / "run" / name).is_file(), name
