"""The grader of a new recipe: the name of the right queue and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from agl.agents.load import load_object

FOLDER = Path(__file__).parents[4] / "recipes" / "starter" / "folder"


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("billing", 1.0),
        (" Billing\n", 1.0),
        ("It is for billing.", 0.0),
        ("returns", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_an_answer_earns_what_it_should(answer: object, reward: float) -> None:
    grade = cast("Any", load_object(f"{FOLDER}/grader.py:grade"))
    assert grade(answer, {"message": "I was charged twice.", "queue": "billing"}) == reward
