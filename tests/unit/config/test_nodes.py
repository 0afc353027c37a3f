"""Nodes: every mistake is found before anything is built, and named by its key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agl.config import build, check, compose
from agl.errors import ConfigError


def built(world: Path, *overrides: str) -> Any:
    return build(compose("train", ["+recipe=sql", *overrides], folders=[world]), object)


def refusal(world: Path, *overrides: str) -> str:
    """Return the error that checking raises; it must be one line."""
    settings = compose("train", overrides, folders=[world])
    with pytest.raises(ConfigError) as caught:
        check(settings)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{world}/", "")


def test_a_tree_is_built_innermost_first_with_plain_typed_values(world: Path) -> None:
    root = built(
        world,
        "algorithm.names=[a,b]",
        "algorithm.learning_rate=1",
        "algorithm.folder=there",
    )
    settings = root.algorithm.settings
    assert settings["names"] == ("a", "b")
    assert settings["folder"] == Path("there")
    assert isinstance(settings["learning_rate"], float)


def test_a_nested_node_is_built_and_handed_over(world: Path) -> None:
    root = built(world, f"algorithm.credit={{_target_:'{world}/classes.py:Credit',gamma:0.5}}")
    assert root.algorithm.settings["credit"].gamma == 0.5


def test_nodes_in_a_list_are_built(world: Path) -> None:
    root = built(world, f"algorithm.engines=[{{_target_:'{world}/classes.py:Echo',model:x}}]")
    assert [engine.answer() for engine in root.algorithm.settings["engines"]] == ["x"]


def test_a_function_is_given_by_its_name(world: Path) -> None:
    root = built(world, f"algorithm.score='{world}/classes.py:double'")
    assert root.algorithm.settings["score"](4) == 8


def test_one_node_can_be_built_alone(world: Path) -> None:
    settings = compose("train", ["algorithm.group_size=3"], folders=[world])
    group: Any = build(settings, object, "algorithm")
    assert group.settings["group_size"] == 3


def test_a_key_that_is_no_parameter_names_the_nearest(world: Path) -> None:
    assert refusal(world, "+recipe=sql", "+algorithm.group_sizee=2") == (
        "algorithm.group_sizee is not a setting of classes.py:Group; did you mean algorithm.group_size?"
    )


def test_a_root_key_is_checked_against_the_root_too(world: Path) -> None:
    assert refusal(world, "+recipe=sql", "+sedd=2") == (
        "sedd is not a setting of classes.py:Root; did you mean seed?"
    )


def test_missing_values_are_named_together(world: Path) -> None:
    assert refusal(world, "seed=???") == (
        "no value for name, seed; choose a recipe (+recipe=NAME) or give name=..."
    )


def test_a_recipe_is_not_offered_for_what_no_recipe_says() -> None:
    settings = compose("train", ["+recipe=ppo_sql", "store.path=???"])
    with pytest.raises(ConfigError, match=r"^no value for store\.path; give store\.path=\.\.\.$"):
        check(settings)


def test_a_required_parameter_that_is_not_there_is_named(world: Path) -> None:
    assert refusal(world, "+recipe=sql", "~algorithm") == "algorithm is missing: classes.py:Root requires it"


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("algorithm.group_size=abc", 'algorithm.group_size is "abc": input should be a valid integer'),
        ("algorithm.group_size='8'", 'algorithm.group_size is "8": input should be a valid integer'),
        ("algorithm.group_size=8.5", "algorithm.group_size is 8.5: input should be a valid integer"),
        ("algorithm.group_size=true", "algorithm.group_size is true: input should be a valid integer"),
        ("algorithm.group_size=null", "algorithm.group_size is null: input should be a valid integer"),
        ("algorithm.learning_rate='1'", 'algorithm.learning_rate is "1": input should be a valid number'),
        ("algorithm.kind=worst", "algorithm.kind is \"worst\": input should be 'mean' or 'best'"),
        ("algorithm.names=[a,3]", 'algorithm.names is ["a", 3]: at 1, input should be a valid string'),
        (
            "algorithm.limit=x",
            'algorithm.limit is "x": input should be a valid integer or input should be null',
        ),
        (
            "algorithm.credit={gamma:1}",
            'algorithm.credit is {"gamma": 1}: input should be null or a Credit with a _target_',
        ),
        ("seed=[1]", "seed is [1]: input should be a valid integer"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(world: Path, override: str, reason: str) -> None:
    assert refusal(world, "+recipe=sql", override) == reason


def test_a_secret_of_the_wrong_type_is_not_repeated(world: Path) -> None:
    assert refusal(world, "+recipe=sql", "api_key=123456") == (
        "api_key is what was given: input should be a valid string"
    )


def test_a_node_of_the_wrong_class_is_refused_before_anything_is_built(world: Path) -> None:
    assert refusal(world, "+recipe=sql", f"algorithm={{_target_:'{world}/classes.py:Echo'}}") == (
        "algorithm builds a Echo; it must be Group"
    )


def test_an_object_without_the_members_of_a_protocol_is_refused(world: Path) -> None:
    assert refusal(world, "+recipe=sql", f"engine={{_target_:'{world}/classes.py:Mute'}}") == (
        "engine builds a Mute; it must be Engine or null"
    )


def test_a_value_that_a_constructor_refuses_is_named_by_the_nodes_key(world: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        built(world, "algorithm.group_size=1")
    assert str(caught.value) == "algorithm: group_size must be at least 2"
    with pytest.raises(ConfigError) as caught:
        built(world, "algorithm.limit=404")
    assert str(caught.value) == "algorithm: no such file"


def test_the_root_must_be_what_was_asked_for(world: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.yaml builds a Root; it must be a dict"):
        build(compose("train", ["+recipe=sql"], folders=[world]), dict)
