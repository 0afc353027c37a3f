"""Arguments that several commands take: ``--resume`` may stand alone."""

from __future__ import annotations

import pytest

from agl.cli.arguments import with_resume_value


@pytest.mark.parametrize(
    ("given", "completed"),
    [
        (["--resume"], ["--resume", "newest"]),
        (["--resume", "mine"], ["--resume", "mine"]),
        (["--resume", "seed=1"], ["--resume", "newest", "seed=1"]),
        (["--resume", "+a=1"], ["--resume", "newest", "+a=1"]),
        (["--resume", "--cfg"], ["--resume", "newest", "--cfg"]),
        (["--resume=mine"], ["--resume=mine"]),
        ([], []),
    ],
)
def test_resume_may_stand_without_a_run(given: list[str], completed: list[str]) -> None:
    assert with_resume_value(given) == completed
