"""Classes as agents: a method by mode, set-up once, settings checked."""

import pickle
from pathlib import Path
from typing import Any

import pytest

import agl
from agl.agents.base import LongLived, opened
from agl.agents.function import FunctionAgent, as_agent
from agl.agents.lit_agent import InstanceAgent, built
from agl.errors import ConfigError
from agl.types import LLM

FILE = """
import agl

class Solver(agl.LitAgent):
    def __init__(self, times: int, *, bonus: float = 0.0):
        self.times, self.bonus, self.log = times, bonus, []

    async def setup(self):
        self.log.append("setup")

    def teardown(self):
        self.log.append("teardown")

    async def rollout(self, task):
        return task * self.times + self.bonus

solver = Solver(2)
"""


class Both(agl.LitAgent[Any]):
    async def training_rollout(self, task: int) -> str:
        return f"training {task}"

    def validation_rollout(self, task: int, llm: LLM) -> str:
        return f"validation {task} {llm.model}"


class Mixed(agl.LitAgent[Any]):
    def rollout(self, task: int) -> str:
        return f"any {task}"

    async def training_rollout(self, task: int) -> str:
        return f"training {task}"


def in_mode(assignment, mode: str, **resources: Any):
    made = assignment(1, **resources)
    object.__setattr__(made, "rollout", made.rollout.model_copy(update={"mode": mode}))
    return made


async def test_the_method_is_the_modes(assignment) -> None:
    llm = LLM(base_url="http://one", model="one")
    agent = as_agent(Both)
    assert agent.name == "Both"
    assert [await agent.run(in_mode(assignment, mode, llm=llm)) for mode in ("train", "val", "test")] == [
        "training 1",
        "validation 1 one",
        "validation 1 one",
    ]
    mixed = as_agent(Mixed())
    assert [await mixed.run(in_mode(assignment, mode)) for mode in ("train", "val", "test")] == [
        "training 1",
        "any 1",
        "any 1",
    ]


async def test_teardown_comes_also_when_the_block_fails() -> None:
    calls: list[str] = []

    class Sad(agl.LitAgent[Any]):
        async def rollout(self, task: Any) -> None: ...

        def teardown(self) -> None:
            calls.append("teardown")

    agent = as_agent(Sad)
    assert isinstance(agent, LongLived)
    with pytest.raises(ZeroDivisionError):
        async with opened(agent):
            raise ZeroDivisionError
    assert calls == ["teardown"]


async def test_a_class_is_made_with_its_settings_checked(tmp_path: Path, assignment) -> None:
    file = tmp_path / "solver.py"
    file.write_text(FILE)
    agent = FunctionAgent(f"{file}:Solver", {"times": 3, "bonus": 1})
    assert (agent.name, await agent.run(assignment(2))) == ("Solver", 7.0)
    for settings, message in [
        ({"time": 3}, r"settings\.time is not a parameter of Solver; did you mean settings\.times"),
        ({"times": "many"}, r"settings\.times='many' does not fit"),
        ({}, r"Solver needs settings\.times: give a value"),
    ]:
        with pytest.raises(ConfigError, match=message):
            FunctionAgent(f"{file}:Solver", settings)
    assert await as_agent(f"{file}:solver").run(assignment(2)) == 4
    with pytest.raises(ConfigError, match="is an object that is made already"):
        FunctionAgent(f"{file}:solver", {"times": 3})


def test_a_class_without_constructor_takes_no_settings() -> None:
    assert isinstance(built(Both, {}), Both)
    with pytest.raises(ConfigError, match="times is not a parameter of Both; it has none to set"):
        built(Both, {"times": 1})


def test_a_class_without_a_method_for_a_mode_is_refused() -> None:
    class Silent(agl.LitAgent[Any]):
        pass

    class TrainOnly(agl.LitAgent[Any]):
        async def training_rollout(self, task: Any) -> None: ...

    class Old(agl.LitAgent[Any]):
        async def rollout_async(self, task: Any) -> None: ...

    class Steps(agl.LitAgent[Any]):
        def rollout(self, task: Any):
            yield task

    with pytest.raises(
        ConfigError, match=r"Silent has no method for mode train: write rollout or training_rollout$"
    ):
        as_agent(Silent)
    with pytest.raises(ConfigError, match="TrainOnly has no method for mode val"):
        as_agent(TrainOnly())
    with pytest.raises(ConfigError, match="name rollout_async rollout: it may be async"):
        as_agent(Old)
    with pytest.raises(ConfigError, match="is a generator"):
        as_agent(Steps)


async def test_instance_agents_pickle_with_their_object(assignment) -> None:
    agent = pickle.loads(pickle.dumps(InstanceAgent(Mixed(), name="mine")))
    assert (agent.name, await agent.run(in_mode(assignment, "val"))) == ("mine", "any 1")
