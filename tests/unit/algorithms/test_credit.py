"""Advantages against hand-worked numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.algorithms.credit import generalized_advantages, group_advantages, whitened


def test_group_advantages_by_hand() -> None:
    # mean 0.5, sample deviation sqrt(4 * 0.25 / 3) = 0.577350
    expected = [0.866025, -0.866025, -0.866025, 0.866025]
    assert group_advantages([1.0, 0.0, 0.0, 1.0]) == pytest.approx(expected, abs=1e-5)
    assert group_advantages([1.0, 0.0, 0.0, 1.0], scale_by_std=False) == [0.5, -0.5, -0.5, 0.5]


def test_a_group_without_variance_teaches_nothing() -> None:
    assert group_advantages([0.7, 0.7, 0.7]) == [0.0, 0.0, 0.0]
    assert group_advantages([1.0]) == [0.0]


def test_generalized_advantages_by_hand() -> None:
    # gamma 0.9, lambda 0.5, values .5 .4 .2, reward 1 at the end:
    # delta_2 = 1 - .2 = .8; delta_1 = .9*.2 - .4 = -.22; delta_0 = .9*.4 - .5 = -.14
    # A_2 = .8; A_1 = -.22 + .45*.8 = .14; A_0 = -.14 + .45*.14 = -.077
    advantages = generalized_advantages([0, 0, 1.0], [0.5, 0.4, 0.2], gamma=0.9, gae_lambda=0.5)
    assert advantages == pytest.approx([-0.077, 0.14, 0.8])


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 2)), min_size=1, max_size=12))
def test_lambda_one_is_the_return_minus_the_value(steps: list[tuple[float, float]]) -> None:
    rewards, values = [r for r, _ in steps], [v for _, v in steps]
    expected = [sum(rewards[t:]) - values[t] for t in range(len(steps))]
    assert generalized_advantages(rewards, values, gamma=1.0, gae_lambda=1.0) == pytest.approx(
        expected, abs=1e-9
    )


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 2)), min_size=1, max_size=12))
def test_lambda_zero_is_the_one_step_error(steps: list[tuple[float, float]]) -> None:
    rewards, values = [r for r, _ in steps], [v for _, v in steps]
    following = [*values[1:], 0.0]
    expected = [r + 0.9 * n - v for r, v, n in zip(rewards, values, following, strict=True)]
    assert generalized_advantages(rewards, values, gamma=0.9, gae_lambda=0.0) == pytest.approx(
        expected, abs=1e-9
    )


def test_whitened_advantages_have_mean_zero_and_deviation_one_over_all_episodes() -> None:
    # values 1, 2, 3, 6: mean 3, sample deviation sqrt(14/3) = 2.160247
    assert whitened([[1.0, 2.0], [3.0, 6.0]]) == [
        pytest.approx([-0.925820, -0.462910], abs=1e-5),
        pytest.approx([0.0, 1.388730], abs=1e-5),
    ]
    assert whitened([[2.0, 2.0]]) == [[0.0, 0.0]]
    assert whitened([]) == []


ORACLE = json.loads((Path(__file__).parents[2] / "data" / "verl_oracle.json").read_text())


def _steps(row: int, values: list[list[float]]) -> list[float]:
    return [value for value, mask in zip(values[row], ORACLE["mask"][row], strict=True) if mask]


def test_generalized_advantages_equal_verl_also_across_turns() -> None:
    settings = ORACLE["gae"]
    rows = range(len(ORACLE["mask"]))
    advantages = [
        generalized_advantages(
            _steps(row, ORACLE["rewards"]),
            _steps(row, ORACLE["values"]),
            gamma=settings["gamma"],
            gae_lambda=settings["lambda"],
        )
        for row in rows
    ]
    for row, white in zip(rows, whitened(advantages), strict=True):
        assert white == pytest.approx(_steps(row, settings["advantages_whitened"]), abs=1e-6)
        returns = [a + v for a, v in zip(advantages[row], _steps(row, ORACLE["values"]), strict=True)]
        assert returns == pytest.approx(_steps(row, settings["returns"]), abs=1e-6)


def test_group_advantages_equal_verl() -> None:
    for group in ("a", "b"):
        rows = [row for row, name in enumerate(ORACLE["groups"]) if name == group]
        ours = group_advantages([ORACLE["scores"][row] for row in rows])
        for row, advantage in zip(rows, ours, strict=True):
            assert all(value == pytest.approx(advantage, abs=1e-5) for value in _steps(row, ORACLE["grpo"]))
