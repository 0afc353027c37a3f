"""Student's t distribution: how far off a mean of few tasks may be.

Exact to some 1e-12, in plain Python: evaluation must not bring scipy along.
"""

from __future__ import annotations

import math

_TINY = 1e-300
_ENOUGH = 1e-15
"""Relative change of the continued fraction at which it has converged."""
_MAX_TERMS = 10_000
_MAX_STEPS = 100


def t_cdf(value: float, freedom: float) -> float:
    """Return the chance that a t-distributed number with these degrees of freedom is at most ``value``."""
    tail = 0.5 * _beta_share(freedom / 2, 0.5, freedom / (freedom + value * value))
    return tail if value < 0 else 1 - tail


def t_two_sided(value: float, freedom: float) -> float:
    """Return the chance of a t-distributed number at least as far from 0 as ``value``."""
    if math.isinf(value):
        return 0.0
    return _beta_share(freedom / 2, 0.5, freedom / (freedom + value * value))


def t_quantile(chance: float, freedom: float) -> float:
    """Return the number that a t-distributed one stays below with this chance.

    Raises:
        ValueError: a chance that is not between 0 and 1, or no degree of freedom.
    """
    if not 0 < chance < 1 or not freedom > 0:
        raise ValueError(f"no quantile of t: chance {chance}, degrees of freedom {freedom}")
    if chance < 0.5:
        return -t_quantile(1 - chance, freedom)
    outside = 2 * (1 - chance)
    low, high = 0.0, 1.0
    while t_two_sided(high, freedom) > outside:
        low, high = high, high * 2
    value = (low + high) / 2
    for _ in range(_MAX_STEPS):
        excess = t_two_sided(value, freedom) - outside
        low, high = (value, high) if excess > 0 else (low, value)
        better = value + excess / (
            2 * _density(value, freedom)
        )  # Newton's step, where it stays between the two
        better = better if low < better < high else (low + high) / 2
        if abs(better - value) <= 1e-15 * better:
            break
        value = better
    return value


def _density(value: float, freedom: float) -> float:
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    return math.exp(log_scale - (freedom + 1) / 2 * math.log1p(value * value / freedom))


def _beta_share(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function I_x(a, b) (DLMF 8.17.22, by Lentz's method)."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast below
        return 1 - _beta_share(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, _inverse(1 - (a + b) * x / (a + 1))
    total = d
    for m in range(1, _MAX_TERMS):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = _inverse(1 + factor * d)
            c = 1 + factor / c
            c = c if abs(c) > _TINY else _TINY
            change = c * d
            total *= change
        if abs(change - 1) < _ENOUGH:
            break
    return math.exp(log_front) * total / a


def _inverse(value: float) -> float:
    return 1 / (value if abs(value) > _TINY else _TINY)
