"""The agent: it gets all that it takes by name, or its program is there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agl.agents.command import CommandAgent
from agl.agents.function import CallableAgent, FunctionAgent, as_agent
from agl.agents.lit_agent import LitAgent
from agl.doctor.program import agent
from agl.errors import ConfigError
from agl.types import LLM, PromptTemplate

PROMPT = {"prompt": PromptTemplate(template="{q}")}


def asking(task: object, llm: LLM, prompt: PromptTemplate, rollout: object, *, hint: str = "x") -> float:
    return 1.0


async def test_an_agent_that_gets_all_it_takes_is_well() -> None:
    (finding,) = await agent(CallableAgent(asking), PROMPT)
    assert (finding.status, finding.detail) == ("ok", "asking takes what it is given: llm, prompt")


async def test_a_parameter_that_nobody_gives_fails_by_name() -> None:
    (finding,) = await agent(CallableAgent(asking), {})
    assert finding.status == "fail"
    assert finding.detail.startswith("asking needs a resource 'prompt'; this rollout has llm.")


async def test_a_function_in_a_file_is_looked_at_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def mine(task, other):\n    return 1.0\n")
    built = FunctionAgent(f"{tmp_path}/mine.py:mine")
    assert [finding.status for finding in await agent(built, {})] == ["fail"]
    assert [finding.status for finding in await agent(built, {"other": 1})] == ["ok"]


async def test_every_method_of_a_class_is_looked_at() -> None:
    class Two(LitAgent[Any]):
        def training_rollout(self, task: object, llm: LLM) -> float:
            return 1.0

        def validation_rollout(self, task: object, judge: LLM) -> float:
            return 1.0

    (finding,) = await agent(as_agent(Two), {})
    assert finding.status == "fail"
    assert "needs a resource 'judge'" in finding.detail


async def test_a_program_must_be_there() -> None:
    (finding,) = await agent(CommandAgent([sys.executable, "x.py"], name="x"), {})
    assert finding.detail == "the program x is there"
    with pytest.raises(ConfigError, match="there is no program 'no-such-program'"):
        await agent(CommandAgent(["no-such-program"]), {})


async def test_an_agent_of_another_kind_is_named() -> None:
    class Own:
        name = "own"

        async def run(self, assignment: object) -> object:
            return None

    (finding,) = await agent(Own(), {})
    assert (finding.status, finding.detail) == ("ok", "own")
