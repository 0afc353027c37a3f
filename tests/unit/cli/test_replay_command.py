"""agl replay on the command line: mistakes that end it with one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Agl


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ro-1"], "has no run with records: name a run with --run-dir"),
        (["ro-1", "--run-dir", "lost"], "there is no run lost"),
        (["ro-1", "--from-call", "0"], "--from-call 0: calls are counted from 1"),
        ([], "agl: agl replay: missing argument 'ROLLOUT' (see agl replay --help)"),
    ],
)
def test_a_mistake_is_told(arguments: list[str], message: str, in_folder: Path, agl: Agl) -> None:
    code, out, err = agl("replay", *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_help_shows_how(agl: Agl) -> None:
    code, out, _ = agl("replay", "--help")
    assert code == 0
    assert "For example:" in out
