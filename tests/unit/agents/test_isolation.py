"""Agents in processes of their own; what real processes do is in the integration tests."""

import os
import pickle
from pathlib import Path

import pytest

from agl.agents.base import LongLived, opened
from agl.agents.function import FunctionAgent
from agl.agents.isolation import IsolatedAgent
from agl.errors import ConfigError


@pytest.fixture
def agent(tmp_path: Path) -> FunctionAgent:
    (tmp_path / "mine.py").write_text(
        "import os\ndef pid(task, *, add: int = 0):\n    return {'pid': os.getpid(), 'task': task + add}\n"
    )
    return FunctionAgent(f"{tmp_path}/mine.py:pid", {"add": 2}, isolation="process")


async def test_attempts_run_in_one_other_process_that_is_kept_while_the_agent_is_open(
    agent, assignment
) -> None:
    assert isinstance(agent, LongLived)
    async with opened(agent):
        first, second = await agent.run(assignment(1)), await agent.run(assignment(2))
    assert (first["task"], second["task"]) == (3, 4)
    assert first["pid"] == second["pid"] != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(first["pid"], 0)


def test_the_target_and_its_settings_are_checked_before_any_process_starts(agent, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean settings\.add"):
        FunctionAgent(f"{tmp_path}/mine.py:pid", {"ad": 2}, isolation="process")


def test_isolated_agents_pickle_by_reference(agent) -> None:
    back = pickle.loads(pickle.dumps(agent))
    assert (back.name, type(back._agent)) == ("pid", IsolatedAgent)
