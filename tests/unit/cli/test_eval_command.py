"""agl eval on the command line: its options, and mistakes that end it with one line before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Agl

AGENT = """
async def agent(task):
    return float(task["n"])

def tasks(split):
    return [{"n": number} for number in range(4)] if split == "train" else []
"""


@pytest.fixture
def given(in_folder: Path) -> list[str]:
    """Overrides with an agent and tasks."""
    (in_folder / "mine.py").write_text(AGENT)
    return [
        f"agent.target={in_folder}/mine.py:agent",
        "data=function",
        f"data.function={in_folder}/mine.py:tasks",
        f"trusted=[{in_folder}]",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode", "dev"], "mode=dev: one of train, val, test"),
        (["--limit", "0"], "limit=0 must be at least 1"),
        (["-k", "0"], "repeats=0 must be at least 1"),
        (["evaluation.repeat=2"], "did you mean"),
        (["--resources", "nobody"], "there is no run nobody and no resources of that id"),
        (["--resources", "latest"], "has no run of train with a policy or prompts"),
        (["--against", "nobody"], "there is no run nobody"),
        (["--against", "base"], "--resources base and --against base are the same model and prompts"),
        (["--resume", "nobody"], "there is no run nobody"),
        (["--store-url", "ftp://x"], "the address of an `agl store`"),
        (["data.val_split=null"], "no test and no val tasks; evaluation.mode=train takes the training tasks"),
        (["evaluation.pass_at=[3]"], "pass@3 needs repeats=3"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do_and_leaves_no_folder(
    given: list[str], agl: Agl, arguments: list[str], message: str
) -> None:
    overrides = [] if "--resume" in arguments else given
    code, out, err = agl("eval", *overrides, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not Path("runs").exists()


def test_an_agent_must_be_named(in_folder: Path, agl: Agl) -> None:
    code, _, err = agl("eval", "--mode", "val")
    assert code == 2
    assert "agent.target" in err


def test_the_help_has_examples(agl: Agl) -> None:
    code, out, _ = agl("eval", "--help")
    assert code == 0
    for word in ("--against", "--fail-under", "--resources", "agl eval +recipe=ppo_sql --against base"):
        assert word in out
