"""agl regrade on the command line: mistakes that end it with one line."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from command_line import Agl
from recorded_folder import recorded_folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grader", "mine.py:grades"], "mine.py has no 'grades'; did you mean 'grade'?"),
        (["--grader", "lost.py:grade"], "there is no file lost.py"),
        (["--grader", "grade"], "names no object: write 'package.module:name' or 'path/file.py:name'"),
        (["--grader", "mine.py:SilentProxy"], "--grader mine.py:SilentProxy is no function"),
        (["--grader", "mine.py:grade", "--set", "colour=1"], "settings.colour is not a parameter of grade"),
        (["--grader", "mine.py:grade", "--set", "x"], "--set x: write NAME=VALUE"),
        (["--grader", "mine.py:grade", "one-7"], "no rollout or run is called 'one-7'"),
        (["--grader", "mine.py:grade", "--run-dir", "lost"], "there is no run lost"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str, in_folder: Path, agl: Agl) -> None:
    asyncio.run(recorded_folder(in_folder, [0]))
    code, out, err = agl("regrade", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_help_shows_how(agl: Agl) -> None:
    code, out, _ = agl("regrade", "--help")
    assert code == 0
    assert "For example:" in out
