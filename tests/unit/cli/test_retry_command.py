"""agl retry on the command line: mistakes that end it with one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Agl


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["agent.target=a.py:b"],
            "agl retry takes ids of rollouts: agl ls rollouts --status failed lists them",
        ),
        (["ro-1", "+recipe=ppo_sql"], "+recipe=ppo_sql: settings are for --here"),
        (["ro-1"], "has no run with records: name a run with --run-dir"),
        (["ro-1", "--run-dir", "lost"], "there is no run lost"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str, in_folder: Path, agl: Agl) -> None:
    code, out, err = agl("retry", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_help_shows_how(agl: Agl) -> None:
    code, out, _ = agl("retry", "--help")
    assert code == 0
    assert "For example:" in out
