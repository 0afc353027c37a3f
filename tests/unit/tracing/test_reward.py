"""What counts as a reward."""

from decimal import Decimal

import numpy as np
import pytest

from agl.tracing.reward import Reward, reward_attributes, reward_from_attributes, reward_from_value


@pytest.mark.parametrize(
    ("value", "expected"), [(1, 1.0), (0, 0.0), (-2.5, -2.5), (np.float32(0.5), 0.5), (np.int64(3), 3.0)]
)
def test_a_number_is_a_reward_without_dimensions(value: object, expected: float) -> None:
    assert reward_from_value(value) == Reward(value=expected, dimensions={})


@pytest.mark.parametrize("value", [True, "1", None, [1.0], object(), Decimal(1), np.bool_(1)])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="must be a number"):
        reward_from_value(value)


def test_a_bool_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(TypeError, match=r"write float\(\.\.\.\)"):
        reward_from_value(True)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        reward_from_value(value)
    with pytest.raises(ValueError, match="dimension 'b' must be finite"):
        reward_from_value({"a": 1.0, "b": value})


def test_the_named_dimension_is_primary() -> None:
    reward = reward_from_value({"style": 0.2, "right": 1}, primary="right")
    assert reward == Reward(value=1.0, dimensions={"style": 0.2, "right": 1.0})


def test_an_only_dimension_or_the_one_called_reward_is_primary() -> None:
    assert reward_from_value({"style": 0.2}).value == 0.2
    assert reward_from_value({"style": 0.2, "reward": 0.7}).value == 0.7


def test_several_dimensions_without_a_primary_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"2 dimensions .a, b. needs a primary one"):
        reward_from_value({"a": 1.0, "b": 2.0})


@pytest.mark.parametrize(
    ("value", "primary", "words"),
    [
        ({"a": 1.0}, "b", "none of the reward's dimensions: a"),
        (1.0, "a", "single number"),
        ({}, None, "no dimensions"),
    ],
)
def test_a_primary_that_fits_nothing_is_refused(value: object, primary: str | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        reward_from_value(value, primary=primary)


def test_a_dimension_needs_a_name() -> None:
    with pytest.raises(TypeError, match="non-empty str"):
        reward_from_value({1: 1.0})


def test_a_reward_is_read_back_from_the_attributes_of_its_span() -> None:
    reward = Reward(value=0.5, dimensions={"reward": 0.5, "form": 1.0})
    attributes = reward_attributes(reward)
    assert attributes == {
        "agl.reward.value": 0.5,
        "agl.reward.dimension.reward": 0.5,
        "agl.reward.dimension.form": 1.0,
    }
    assert reward_from_attributes({**attributes, "agl.reward.returned": True}) == reward
    with pytest.raises(TypeError, match="a reward must be a number"):
        reward_from_attributes({})
