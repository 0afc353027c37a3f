"""Student's t against values of scipy 1.17 (scipy.stats.t), and against the distributions that have a formula."""

from __future__ import annotations

import math

import pytest

from agl.evaluation.student import t_cdf, t_quantile, t_two_sided


@pytest.mark.parametrize(
    ("chance", "freedom", "expected"),
    [
        (0.975, 1, 12.706204736174694),
        (0.975, 2, 4.302652729749462),
        (0.975, 4, 2.7764451051977934),
        (0.975, 9, 2.262157162798205),
        (0.975, 99, 1.9842169515864174),
        (0.995, 3, 5.840909309733355),
        (0.975, 1e6, 1.959966356814107),
    ],
)
def test_quantiles_are_scipys(chance: float, freedom: float, expected: float) -> None:
    assert t_quantile(chance, freedom) == pytest.approx(expected, rel=1e-9)
    assert t_quantile(1 - chance, freedom) == pytest.approx(-expected, rel=1e-9)


@pytest.mark.parametrize(
    ("value", "freedom", "expected"),
    [
        (-2.5, 3, 0.04385332350403278),
        (0.3, 7, 0.6135549747989328),
        (1.0, 1, 0.75),
        (12.0, 5, 0.9999645525374142),
        (-40, 10, 1.1404288715428768e-12),
        (2, 1000, 0.9771148267533741),
        (0, 5, 0.5),
    ],
)
def test_chances_are_scipys(value: float, freedom: float, expected: float) -> None:
    assert t_cdf(value, freedom) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("value", [0.01, 0.5, 2.0, 30.0, 1e5])
def test_one_and_two_degrees_of_freedom_are_their_formulas(value: float) -> None:
    assert t_two_sided(value, 1) == pytest.approx(1 - 2 * math.atan(value) / math.pi, rel=1e-9, abs=1e-12)
    assert t_cdf(-value, 2) == pytest.approx(0.5 * (1 - value / math.sqrt(2 + value**2)), rel=1e-5)


def test_a_quantile_is_where_the_chance_is_reached() -> None:
    for freedom in (1, 3, 17, 250):
        for chance in (0.6, 0.9, 0.999):
            assert t_cdf(t_quantile(chance, freedom), freedom) == pytest.approx(chance, abs=1e-12)
    assert t_quantile(0.5, 4) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("chance", "freedom"), [(0.0, 1), (1.0, 1), (math.nan, 1), (0.9, 0)])
def test_what_is_no_quantile_is_refused(chance: float, freedom: float) -> None:
    with pytest.raises(ValueError, match="no quantile of t"):
        t_quantile(chance, freedom)
