"""agl cancel on the command line: mistakes that end it with one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Agl


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "agl cancel takes either ids of rollouts, or --run RUN"),
        (["ro-1", "--run", "one"], "agl cancel takes either ids of rollouts, or --run RUN"),
        (["ro-1"], "has no run with records: name a run with --run-dir"),
        (["ro-1", "--run-dir", "lost"], "there is no run lost"),
        (["ro-1", "--run-dir", "x", "--store-url", "http://127.0.0.1:1"], "name two stores: leave one out"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str, in_folder: Path, agl: Agl) -> None:
    code, out, err = agl("cancel", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_help_shows_how(agl: Agl) -> None:
    code, out, _ = agl("cancel", "--help")
    assert code == 0
    assert "For example:" in out
