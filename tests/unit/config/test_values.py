"""Values: strict about types, but an int is a float, a list is a tuple, and a protocol asks for its members only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import pytest

from agl.config.values import built_by, expected_name, fits, item_annotation, typed
from agl.errors import ConfigError
from agl.types import RolloutConfig


class Speaks(Protocol):
    language: str

    def speak(self) -> str: ...


class Dog:
    def __init__(self) -> None:
        self.language = "bark"

    def speak(self) -> str:
        return self.language


class Silent:
    language = "none"


class Shy:
    """Its property must not be read to find out whether it is there."""

    @property
    def language(self) -> str:
        raise RuntimeError("not started")

    def speak(self) -> str:
        return ""


@dataclass
class Point:
    x: int = 0


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (3, int, 3),
        (1, float, 1.0),
        (None, int | None, None),
        ([1, 2], tuple[int, ...], (1, 2)),
        (["a"], Sequence[str], ["a"]),
        ({"a": 1}, Mapping[str, Any], {"a": 1}),
        ("a/b", Path, Path("a/b")),
        ("x", Literal["x", "y"], "x"),
        (float("inf"), float, float("inf")),
        (["any", {"thing": 1}], Any, ["any", {"thing": 1}]),
        ({"timeout_seconds": 5}, RolloutConfig, RolloutConfig(timeout_seconds=5)),
    ],
)
def test_a_value_becomes_what_the_annotation_says(value: Any, annotation: Any, expected: Any) -> None:
    made = typed(value, annotation, "key", show=True)
    assert made == expected
    assert type(made) is type(expected)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ("3", int),
        (3.0, int),
        (True, int),
        (1, bool),
        (1, str),
        (None, int),
        ("z", Literal["x", "y"]),
        ([1, "2"], list[int]),
        ({"timeout_secondss": 5}, RolloutConfig),
        ({"x": 1}, Point),
        ("text", Speaks),
        ("text", Dog),
    ],
)
def test_another_type_is_refused_by_key(value: Any, annotation: Any) -> None:
    with pytest.raises(ConfigError, match=r"^some\.key "):
        typed(value, annotation, "some.key", show=True)


def test_a_long_value_is_shortened_in_the_message() -> None:
    with pytest.raises(ConfigError) as caught:
        typed(["word"] * 1000, int, "key", show=True)
    assert len(str(caught.value)) < 200


def test_a_class_that_must_be_built_asks_for_a_node() -> None:
    with pytest.raises(ConfigError, match="key must be Dog, built by a node with a _target_"):
        typed(3, Dog, "key", show=True)


def test_a_function_is_loaded_by_its_name() -> None:
    assert typed("math:sqrt", Callable[[float], float], "key", show=True)(9.0) == 3.0
    with pytest.raises(ConfigError, match="key: math:pi is a float and not a function"):
        typed("math:pi", Callable[..., Any] | None, "key", show=True)


def test_items_of_containers_have_their_own_annotation() -> None:
    assert item_annotation(list[Dog]) is Dog
    assert item_annotation(dict[str, Dog] | None) is Dog
    assert item_annotation(tuple[Dog, ...]) is Dog
    assert item_annotation(int) is Any


def test_a_protocol_is_fitted_by_whatever_has_its_members() -> None:
    assert fits(Speaks, Dog())
    assert fits(Speaks | None, None)
    assert fits(Speaks, Shy())
    assert not fits(Speaks, Silent())
    assert built_by(Dog, Speaks)
    assert not built_by(Silent, Speaks)


def test_classes_are_fitted_by_instances_and_subclasses() -> None:
    assert fits(Dog, Dog())
    assert not fits(Dog, Silent())
    assert fits(Annotated[Dog, "good"], Dog())
    assert fits(Callable[..., Any], len)
    assert fits(Literal[1, 2], 2)
    assert fits(Any, Silent())
    assert built_by(Dog, Dog | None)
    assert not built_by(Dog, AbstractAsyncContextManager[Any])


def test_an_annotation_is_named_for_people() -> None:
    assert expected_name(Dog | None) == "Dog or null"
    assert expected_name(Literal["a", "b"]) == "'a' or 'b'"
