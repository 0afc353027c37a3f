"""Functions as agents."""

import asyncio
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

import agl
from agl.agents.base import MissingResourceError
from agl.agents.function import CallableAgent, FunctionAgent, as_agent
from agl.errors import ConfigError
from agl.types import LLM


@agl.rollout
async def add(task: dict[str, int], llm: LLM, *, bonus: float = 0.0) -> float:
    """Adds."""
    return task["a"] + task["b"] + bonus


@agl.rollout()
def shout(task: str, rollout: agl.Rollout, attempt: agl.Attempt, resources: dict[str, Any]) -> str:
    return f"{task} {rollout.rollout_id} {attempt.attempt_id} {sorted(resources)} {threading.current_thread().name}"


LLM_ONE = LLM(base_url="http://one", model="one")


async def test_the_decorated_function_is_called_as_before() -> None:
    assert await add({"a": 1, "b": 2}, LLM_ONE) == 3
    assert (add.__name__, add.__doc__) == ("add", "Adds.")
    assert asyncio.iscoroutinefunction(add)


async def test_an_async_function_gets_its_parameters_by_name(assignment) -> None:
    agent = CallableAgent(add, {"bonus": 0.5})
    assert await agent.run(assignment({"a": 1, "b": 2}, llm=LLM_ONE)) == 3.5
    assert agent.name == "add"


async def test_a_sync_function_runs_in_a_thread_of_its_own(assignment) -> None:
    assert await CallableAgent(shout).run(assignment("hey", llm=LLM_ONE)) == "hey r1 a1 ['llm'] agl shout a1"


async def test_what_a_sync_function_raises_is_raised(assignment) -> None:
    def agent(task: str) -> None:
        raise ZeroDivisionError(task)

    with pytest.raises(ZeroDivisionError, match="hey"):
        await CallableAgent(agent).run(assignment("hey"))


async def test_a_sync_function_that_returns_a_coroutine_is_awaited(assignment) -> None:
    assert (
        await CallableAgent(lambda task, llm: add(task, llm)).run(assignment({"a": 1, "b": 1}, llm=LLM_ONE))
        == 2
    )


async def test_the_agent_gets_a_copy_of_the_resources(assignment) -> None:
    given = assignment("x", llm=LLM_ONE)

    def agent(resources: dict[str, Any]) -> None:
        resources.clear()

    await CallableAgent(agent).run(given)
    assert given.resources == {"llm": LLM_ONE}


async def test_a_missing_resource_is_raised(assignment) -> None:
    with pytest.raises(MissingResourceError, match="'llm'"):
        await CallableAgent(add).run(assignment({}))


def test_the_decorator_refuses_generators_and_classes_where_they_are_written() -> None:
    with pytest.raises(ConfigError, match="generator"):

        @agl.rollout
        def steps(task: str):
            yield task

    with pytest.raises(ConfigError, match="must be a function"):
        agl.rollout(int)


async def test_a_function_is_loaded_by_file_with_its_settings_checked(tmp_path: Path, assignment) -> None:
    file = tmp_path / "calc.py"
    file.write_text(
        "import agl\n\n@agl.rollout\ndef double(task, *, times: int = 2):\n    return task * times\n"
    )
    agent = FunctionAgent(f"{file}:double", {"times": 3})
    assert await agent.run(assignment(5)) == 15
    assert isinstance(agent, agl.agents.base.Agent)
    with pytest.raises(ConfigError, match=r"settings\.time is not .*did you mean settings\.times"):
        FunctionAgent(f"{file}:double", {"time": 3})
    with pytest.raises(ConfigError, match=r"did you mean 'double'"):
        FunctionAgent(f"{file}:duble")


async def test_function_agents_pickle_by_reference_from_any_folder(
    tmp_path: Path, assignment, monkeypatch
) -> None:
    (tmp_path / "calc.py").write_text("def double(task, *, times: int = 2):\n    return task * times\n")
    monkeypatch.chdir(tmp_path)
    for agent in (FunctionAgent("calc.py:double", {"times": 3}), as_agent("calc.py:double")):
        pickled = pickle.dumps(agent)
        monkeypatch.chdir("/")
        back = pickle.loads(pickled)
        assert (back.name, await back.run(assignment(5))) == ("double", await agent.run(assignment(5)))
        monkeypatch.chdir(tmp_path)
    named = pickle.loads(pickle.dumps(CallableAgent(add, {"bonus": 0.5}, name="adder")))
    assert (named.name, await named.run(assignment({"a": 1, "b": 2}, llm=LLM_ONE))) == ("adder", 3.5)


@pytest.mark.parametrize("target", ["pathlib:Path", "math:pi"])
def test_a_target_that_is_no_function_is_refused(target: str) -> None:
    with pytest.raises(ConfigError, match="it must be a function"):
        FunctionAgent(target)


def test_as_agent_takes_agents_functions_and_names() -> None:
    agent = CallableAgent(add)
    assert as_agent(agent) is agent
    assert as_agent(add).name == "add"
    assert as_agent("json:dumps").name == "dumps"


@pytest.mark.parametrize("value", [3, CallableAgent, None])
def test_as_agent_refuses_the_rest(value: object) -> None:
    with pytest.raises(ConfigError, match="is not an agent"):
        as_agent(value)
