"""Programs as agents: settings, and what they are told. What real programs do is in the integration tests."""

import json
import pickle

import pytest

from agl.agents.base import Answer, opened
from agl.agents.command import CommandAgent, CommandError
from agl.errors import ConfigError
from agl.types import LLM

SAYS = 'echo "$AGL_MODEL $OPENAI_BASE_URL"; echo "{\\"reward\\": $AGL_TASK}"; echo "{\\"answer\\": 42}"'
LLM_ONE = LLM(base_url="http://one/v1", model="one")
LLM_TWO = LLM(base_url="http://two/v1", model="two")


async def test_the_reward_and_the_last_line_are_the_answer(assignment) -> None:
    agent = CommandAgent(["bash", "-c", SAYS])
    assert await agent.run(assignment(3, policy=LLM_ONE)) == Answer(value={"answer": 42}, reward=3)


@pytest.mark.parametrize("command", [[], "node agent.mjs", [""]])
def test_a_command_is_a_list_that_begins_with_a_program(command) -> None:
    with pytest.raises(ConfigError, match=r"agent\.command=.* must be a list"):
        CommandAgent(command)


async def test_a_program_or_folder_that_is_not_there_is_a_settings_error_before_any_attempt(tmp_path) -> None:
    for agent, message in [
        (CommandAgent(["no-such-program"]), r"agent\.command: there is no program 'no-such-program'"),
        (CommandAgent(["./run.sh"], cwd=str(tmp_path)), "there is no program './run.sh'"),
        (CommandAgent(["bash"], cwd=f"{tmp_path}/no"), r"agent\.cwd: there is no folder"),
    ]:
        with pytest.raises(ConfigError, match=message):
            async with opened(agent):
                pass
    (tmp_path / "run.sh").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "run.sh").chmod(0o755)
    async with opened(CommandAgent(["./run.sh"], cwd=str(tmp_path))):
        pass


async def test_of_several_models_one_must_be_named(assignment) -> None:
    several = assignment(1, a=LLM_ONE, b=LLM_TWO)
    with pytest.raises(Exception, match=r"is one of a, b: say which with agent\.llm=NAME"):
        await CommandAgent(["bash", "-c", SAYS]).run(several)
    with pytest.raises(Exception, match=r"asks for the model 'c' \(agent\.llm\); this rollout has a, b"):
        await CommandAgent(["bash", "-c", SAYS], llm="c").run(several)
    script = 'echo "\\"$AGL_MODEL\\""'
    told = await CommandAgent(["bash", "-c", script], llm="b").run(several)
    assert told == Answer(value="two")
    assert await CommandAgent(["bash", "-c", script]).run(assignment(1, llm=LLM_ONE, b=LLM_TWO)) == Answer(
        value="one"
    )


async def test_what_cannot_be_started_is_named_with_why(assignment, tmp_path) -> None:
    (tmp_path / "mine.sh").write_text("exit 0")
    with pytest.raises(CommandError, match=r"mine\.sh cannot be started: .*Permission denied"):
        await CommandAgent([f"{tmp_path}/mine.sh"]).run(assignment(1))


async def test_exporters_of_the_users_own_are_left_alone(assignment, monkeypatch) -> None:
    made = assignment(1)
    object.__setattr__(made, "environment", {"AGL_STORE_URL": "http://store"})
    script = 'echo "\\"$OTEL_EXPORTER_OTLP_TRACES_ENDPOINT\\""'
    assert (await CommandAgent(["bash", "-c", script]).run(made)).value == "http://store/v1/traces"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://mine")
    assert (await CommandAgent(["bash", "-c", script]).run(made)).value == ""


def test_command_agents_pickle() -> None:
    agent = CommandAgent(["node", "agent.mjs"], cwd="/x", env={"A": "1"}, llm="policy", name="mine")
    back = pickle.loads(pickle.dumps(agent))
    assert (back.name, back.__reduce__()) == ("mine", agent.__reduce__())
    assert back.needs_store_url
    assert json.dumps(back.__reduce__()[1])
