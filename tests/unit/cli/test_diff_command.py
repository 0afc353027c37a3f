"""agl diff on the command line: mistakes that end it with one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Agl


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.txt", "lost"], "has no run with records"),
        (["a.txt", "folder"], "folder is no run: it has no settings.yaml"),
        (["a.txt", "a.txt", "-k", "3"], "--repeats is for --evaluate: without it nothing is run"),
        (["a.txt", "a.txt", "seed=1"], "seed=1: agl diff takes two names; overrides are for --evaluate"),
        (["a.txt", "a.txt", "--evaluate"], "--evaluate a.txt: a file alone cannot be measured"),
        (["a.txt", "bare"], "bare has no prompts, and a.txt is one"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str, in_folder: Path, agl: Agl) -> None:
    Path("a.txt").write_text("x")
    Path("folder").mkdir()
    Path("runs/bare").mkdir(parents=True)
    Path("runs/bare/settings.yaml").write_text("name: bare\n")
    code, out, err = agl("diff", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_help_shows_how(agl: Agl) -> None:
    code, out, _ = agl("diff", "--help")
    assert code == 0
    assert "For example:" in out
