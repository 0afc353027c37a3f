"""Parameters by name; settings checked before anything runs."""

import functools
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from agl.agents.base import MissingResourceError
from agl.agents.binding import BoundFunction, check_function, function_name
from agl.errors import ConfigError
from agl.types import LLM, PromptTemplate

LLM_ONE = LLM(base_url="http://one", model="one")
LLM_TWO = LLM(base_url="http://two", model="two")


@dataclass
class Limits:
    seconds: float = 1.0


class Opaque:
    pass


def solve(
    task: str,
    llm: LLM,
    tools: list[str],
    *,
    max_turns: int = 3,
    mode: Literal["fast", "slow"] = "fast",
    limits: Limits | None = None,
    opaque: Opaque | None = None,
) -> None:
    del task, llm, tools, max_turns, mode, limits, opaque


def bound(function: Any = solve, **settings: Any) -> BoundFunction:
    return BoundFunction(function, given=("task", "rollout"), settings=settings)


def test_parameters_come_from_the_call_the_resources_and_the_settings() -> None:
    arguments = bound(max_turns=5).arguments(
        {"task": "t", "rollout": "unused"}, {"llm": LLM_ONE, "tools": ["a"]}
    )
    assert arguments == {"task": "t", "llm": LLM_ONE, "tools": ["a"], "max_turns": 5}


def test_a_resource_takes_the_place_of_a_default_but_not_of_a_setting() -> None:
    resources = {"llm": LLM_ONE, "tools": [], "max_turns": 9, "mode": "slow"}
    arguments = bound(max_turns=5).arguments({"task": "t"}, resources)
    assert (arguments["max_turns"], arguments["mode"]) == (5, "slow")


def test_a_missing_resource_is_named_with_what_there_is() -> None:
    with pytest.raises(MissingResourceError, match="solve needs a resource 'tools'; this rollout has llm"):
        bound().arguments({"task": "t"}, {"llm": LLM_ONE})
    with pytest.raises(MissingResourceError, match="this rollout has none"):
        bound().arguments({"task": "t"}, {})


def test_llm_and_prompt_template_find_the_only_resource_of_their_kind() -> None:
    def agent(llm: LLM, prompt_template: PromptTemplate) -> None: ...

    prompt = PromptTemplate(template="{q}")
    found = bound(agent).arguments({}, {"policy": LLM_ONE, "ask": prompt})
    assert found == {"llm": LLM_ONE, "prompt_template": prompt}
    with pytest.raises(MissingResourceError, match="'llm'"):
        bound(agent).arguments({}, {"a": LLM_ONE, "b": LLM_TWO, "ask": prompt})


def test_an_unknown_setting_is_named_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError,
        match=r"settings\.max_turn is not a parameter of solve; did you mean settings\.max_turns\?",
    ):
        bound(max_turn=1)


def test_a_setting_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"settings\.max_turns='many' does not fit: .*integer"):
        bound(max_turns="many")
    with pytest.raises(ConfigError, match=r"settings\.mode='medium' does not fit: .*'fast' or 'slow'"):
        bound(mode="medium")
    with pytest.raises(
        ConfigError, match=r"settings\.limits=.* at \.Limits\.seconds|settings\.limits=.* at \.seconds"
    ):
        bound(limits={"seconds": "x"})


def test_settings_become_what_their_annotation_says() -> None:
    assert bound(limits={"seconds": 2}).arguments({"task": "t"}, {"llm": LLM_ONE, "tools": []})[
        "limits"
    ] == Limits(2.0)


def test_an_annotation_that_cannot_be_checked_is_let_pass() -> None:
    value = Opaque()
    assert bound(opaque=value).arguments({"task": "t"}, {"llm": LLM_ONE, "tools": []})["opaque"] is value


def test_what_each_rollout_brings_cannot_be_set() -> None:
    with pytest.raises(ConfigError, match=r"settings\.task cannot be set"):
        bound(task="x")


def test_keyword_arguments_take_any_setting() -> None:
    def agent(task: str, **rest: object) -> None: ...

    assert bound(agent, anything=1).arguments({"task": "t", "rollout": 0}, {}) == {"anything": 1, "task": "t"}


def test_a_generator_is_refused_with_what_to_do() -> None:
    def steps(task: str):
        yield task

    async def asteps(task: str):
        yield task

    for function in (steps, asteps, functools.partial(steps)):
        with pytest.raises(ConfigError, match=r"is a generator.*Return the reward"):
            check_function(function)


def test_a_position_only_parameter_is_refused() -> None:
    def agent(task: str, /) -> None: ...

    with pytest.raises(ConfigError, match="takes 'task' by position only"):
        check_function(agent)


def test_a_builtin_without_a_signature_is_refused() -> None:
    with pytest.raises(ConfigError, match="wrap it in a function of your own"):
        check_function(max)


def test_a_class_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be a function"):
        check_function(Opaque)


def test_partials_methods_and_callable_objects_are_functions() -> None:
    class Callable:
        async def __call__(self, task: str) -> float:
            return 1.0

        def method(self, task: str) -> float:
            return 1.0

    async def agent(task: str, llm: LLM) -> None: ...

    assert bound(functools.partial(agent, llm=LLM_ONE)).is_async
    assert bound(Callable()).is_async
    assert not bound(Callable().method).is_async
    assert function_name(functools.partial(solve)) == "solve"
    assert bound(functools.partial(agent, llm=LLM_ONE)).arguments({"task": "t"}, {}) == {"task": "t"}
