"""The programs on the page about agents run as they stand there."""

import shlex
import sys
from pathlib import Path

from command_runs import run_tasks
from doc_pages import ROOT, blocks
from served_proxy import ScriptedEngine

from agl.agents.command import CommandAgent
from agl.agents.load import load_object
from agl.config import check, compose
from agl.proxy import LLMProxy
from agl.runners.grading import Grader
from agl.store.sqlite import InMemoryLightningStore
from agl.types import ProxyLLM

PAGE = ROOT / "docs" / "agents.md"


def block_with(language: str, first_line: str) -> str:
    (block,) = [block for block in blocks(PAGE, language) if block.startswith(first_line)]
    return block


async def test_the_node_agent_of_the_page_asks_the_model_and_says_its_reward(tmp_path: Path) -> None:
    (tmp_path / "agent.mjs").write_text(block_with("js", "// agent.mjs"))
    async with (
        InMemoryLightningStore() as store,
        LLMProxy().serving(store, ScriptedEngine()) as server,
    ):
        llm = ProxyLLM(base_url=server.url, model="policy", api_key=server.api_key)
        tasks = [{"question": "say this", "answer": answer} for answer in ("say this", "something else")]
        agent = CommandAgent(["node", "agent.mjs"], cwd=str(tmp_path))
        runs = await run_tasks(agent, tasks, resources={"llm": llm}, store=store)
    assert [(rollout.reward, rollout.error) for rollout in runs.rollouts] == [(1, None), (0, None)]


async def test_the_python_program_of_the_page_emits_its_reward(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(block_with("python", "# agent.py"))
    agent = CommandAgent([sys.executable, "agent.py"], cwd=str(tmp_path))
    runs = await run_tasks(agent, [{"answer": "four"}])
    assert runs.rollouts[0].reward_dimensions == {"reward": 1.0, "length": 4.0}


async def test_the_grader_and_the_hook_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    (graded,) = [block for block in blocks(PAGE, "python") if "def grade(" in block]
    (hooked,) = [block for block in blocks(PAGE, "python") if "class House" in block]
    (tmp_path / "graded.py").write_text(graded)
    (tmp_path / "hooked.py").write_text(hooked)
    grader = Grader(load_object(f"{tmp_path}/graded.py:grade"), {"weight": 0.5})  # type: ignore[arg-type]
    runs = await run_tasks(f"{tmp_path}/graded.py:answer", ["a"], grader=grader)
    assert runs.rollouts[0].reward == 0.5
    runs = await run_tasks(lambda task: None, ["easy", "hard"], hooks=[f"{tmp_path}/hooked.py:House"])
    assert [rollout.reward for rollout in runs.rollouts] == [1, 0]


def test_the_commands_of_the_page_have_settings_that_exist() -> None:
    commands = [
        line for block in blocks(PAGE, "sh") for line in block.splitlines() if line.startswith("agl train")
    ]
    assert commands
    for command in commands:
        check(compose("train", shlex.split(command)[2:]))
