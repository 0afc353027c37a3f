"""The agents that `agl init` begins with: each has its files, and says what installs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agl.cli.starters import FRAMEWORKS, Framework, Starter

AGENTS = Path(__file__).parents[3] / "recipes" / "starter" / "agents"


def test_every_starter_has_an_agent_and_every_agent_is_a_starter() -> None:
    assert {path.parent.name for path in AGENTS.glob("*/agent.py")} == {starter.value for starter in Starter}
    assert set(FRAMEWORKS) == set(Starter)


@pytest.mark.parametrize(
    ("framework", "line"),
    [
        (Framework(words="plain"), 'pip install "agl[torch]" pytest'),
        (Framework(words="x", extras=("openai",)), 'pip install "agl[torch,openai]" pytest'),
        (Framework(words="x", packages=("langgraph", "y")), 'pip install "agl[torch]" langgraph y pytest'),
    ],
)
def test_one_line_installs_all_that_a_starter_takes(framework: Framework, line: str) -> None:
    assert framework.install_line == line
