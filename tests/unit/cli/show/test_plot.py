"""A plot in text."""

from __future__ import annotations

import math

import pytest

from agl.cli.show.plot import plot


def test_a_curve_runs_from_its_least_to_its_greatest_value() -> None:
    assert plot({"reward": [(0, 0.0), (1, 0.5), (2, 1.0)]}, width=16, height=5) == [
        "  1 │          •",
        "    │",
        "0.5 │     •",
        "    │",
        "  0 │•",
        "    └───────────",
        "     0         2",
        "     • reward",
    ]


def test_two_curves_have_one_scale_and_a_mark_each() -> None:
    lines = plot({"a": [(0, 0.0), (10, 1.0)], "b": [(0, 2.0), (10, 2.0)]}, width=20, height=5)
    assert lines[0] == "2 │○               ○"
    assert (lines[2], lines[4]) == ("1 │                •", "0 │•")
    assert lines[-1].split() == ["•", "a", "○", "b"]


def test_more_points_than_columns_are_shown_by_their_means() -> None:
    zigzag = [(step, float(step % 2)) for step in range(1000)]
    lines = plot({"x": zigzag}, width=40, height=3)
    assert "•" * 20 in lines[1] or "•" * 20 in lines[2] or "•" * 20 in lines[0]
    assert max(map(len, lines)) <= 40


def test_a_curve_without_change_lies_at_the_bottom() -> None:
    assert plot({"x": [(3, 0.5), (4, 0.5)]}, width=20, height=3)[2].startswith("0.5 │•")


@pytest.mark.parametrize("points", [[], [(0, 1.0)], [(0, math.nan), (1, math.inf), (2, 1.0)]])
def test_fewer_than_two_finite_points_are_no_curve(points: list[tuple[int, float]]) -> None:
    assert plot({"x": points}, width=40) == []


def test_points_of_one_step_share_a_column() -> None:
    assert plot({"x": [(5, 0.0), (5, 1.0)]}, width=20, height=3)[1] == "0.5 │•"
